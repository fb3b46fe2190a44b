"""INT4 weights for a bundle's backbone: round to nearest, or activation-aware (AWQ), on the ONNX graph itself."""

"""From a checkpoint directory to a bundle of ONNX stages. A model family is one file and one line in command.py."""

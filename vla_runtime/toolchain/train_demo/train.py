"""The training loop: flow matching with training-time RTC, two auxiliary losses, Muon and AdamW, averaged weights."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional

from vla_runtime.toolchain.train_demo.model import DemoVla, ModelConfig
from vla_runtime.toolchain.train_demo.pool import Batch, Pool, draw_delays

FLOW_STEPS = 5
SLOPE_WEIGHT = 20.0
LATE_WEIGHT = 0.4  # weight of the second half of the chunk, which is executed only when answers are late


@dataclass(frozen=True)
class TrainSettings:
    """``draws``: noisy chunks per observation, for one pass of vision and backbone."""

    minutes: float
    seed: int = 0
    batch: int = 32
    draws: int = 2
    rate: float = 1.0e-3
    warmup_steps: int = 100
    decay: float = 0.25  # the last part of the time, in which the rate falls to zero
    average: float = 0.998
    save_minutes: float = 3.0


def losses(model: DemoVla, batch: Batch, rng: np.random.Generator, draws: int) -> tuple[Tensor, dict[str, float]]:
    """Return the loss of a batch and its parts."""
    keys, values, bias, condition, goal, log_p = model.encode(batch.images, batch.tokens, batch.mask, batch.state)

    def repeat(x: Tensor) -> Tensor:
        return x[:, None].expand(x.shape[0], draws, *x.shape[1:]).reshape(-1, *x.shape[1:])

    actions = repeat(batch.actions)
    rows = actions.shape[0]
    delays = torch.from_numpy(draw_delays(rng, repeat(batch.first).numpy()))
    prefix = torch.arange(actions.shape[1])[None] < delays[:, None]
    # Sampling visits 0, 1/n, ... (n-1)/n: nothing above is ever asked for.
    time_now = torch.from_numpy(rng.uniform(0.0, 1.0 - 0.8 / FLOW_STEPS, rows)).float()
    clock = torch.where(prefix, 1.0, time_now[:, None])
    noise = torch.from_numpy(rng.standard_normal(tuple(actions.shape), dtype=np.float32))
    noisy = clock[..., None] * actions + (1 - clock[..., None]) * noise
    clean = model.action.clean(
        noisy,
        clock,
        [repeat(k) for k in keys],
        [repeat(v) for v in values],
        repeat(bias),
        repeat(condition),
        repeat(batch.state),
    )
    weight = torch.where(torch.arange(actions.shape[1]) < 30, 1.0, LATE_WEIGHT)[None] * (~prefix)
    # The velocity's error is the clean chunk's over (1 - t).
    weight = weight / (1.0 - time_now[:, None]) ** 2
    error = (clean.float() - actions) ** 2
    flow = (error.mean(-1) * weight).sum() / weight.sum() * 4.0
    slope = ((clean.float() - actions).diff(dim=1) ** 2).mean(-1) * (weight * (~prefix))[:, :-1]
    flow = flow + SLOPE_WEIGHT * slope.sum() / weight.sum()
    where = functional.smooth_l1_loss(goal.float(), batch.goal, beta=0.1)
    point = pointing_loss(log_p[:, :, 0], batch, model.config.fine)
    p = log_p[:, :, 0].float().exp()
    uv = torch.matmul(p[..., :-1], model.backbone.pointing.grid) / (1.0 - p[..., -1:] + 1e-4)
    pixel = (functional.smooth_l1_loss(uv, batch.pixels, beta=0.02, reduction="none").mean(-1) * batch.in_view).mean()
    parts = {
        "flow": float(flow.detach()),
        "where": float(where.detach()),
        "point": float(point.detach()),
        "pixel": float(pixel.detach()),
    }
    return flow + 0.3 * where + 0.1 * point + 3.0 * pixel, parts


def pointing_loss(log_p: Tensor, batch: Batch, cells: int) -> Tensor:
    """Cross-entropy to a spot around the named cube's place in each picture, or to "not here"."""
    centres = (torch.arange(cells) + 0.5) / cells
    du = batch.pixels[..., 0:1] - centres
    dv = batch.pixels[..., 1:2] - centres
    spot = torch.exp(-0.5 * (dv[..., :, None] ** 2 + du[..., None, :] ** 2) * cells**2).flatten(2)
    spot = spot / spot.sum(-1, keepdim=True).clamp(min=1e-6) * batch.in_view[..., None]
    target = torch.cat([spot, (~batch.in_view)[..., None].float()], -1)
    return -(target * log_p.float()).sum(-1).mean()


@torch.no_grad()
def sample(
    model: DemoVla, batch_inputs: tuple, state: Tensor, noise: Tensor, committed: Tensor | None = None
) -> Tensor:
    """Integrate the flow in FLOW_STEPS Euler steps; ``committed`` (B, d, 6). Returns (B, 50, 6). Normalised, both."""
    keys, values, bias, condition, _, _ = model.encode(*batch_inputs, state)
    x, count = noise.clone(), 0 if committed is None else committed.shape[1]
    for step in range(FLOW_STEPS):
        clock = torch.full(x.shape[:2], step / FLOW_STEPS)
        if count:
            x[:, :count], clock[:, :count] = committed, 1.0
        x = x + model.action(x, clock, keys, values, bias, condition, state) / FLOW_STEPS
    if count:
        x[:, :count] = committed
    return x


def make_optimisers(model: DemoVla, rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the blocks, AdamW for everything else."""
    inside = [p for name, p in model.named_parameters() if p.ndim == 2 and ".blocks." in name]
    chosen = {id(p) for p in inside}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    return [
        torch.optim.Muon(inside, lr=rate, weight_decay=0.02, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=1.5 * rate, betas=(0.9, 0.95), weight_decay=0.02),
    ]


class Trainer:
    """Trains from a growing pool and writes checkpoints (safetensors with the averaged weights, and the raw ones)."""

    def __init__(self, settings: TrainSettings, pool: Pool, folder: Path, resume: Path | None = None):
        torch.manual_seed(settings.seed)
        self.settings, self.pool, self.folder = settings, pool, Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.step, self.seen = 0, 0
        if resume is None:
            self.model = DemoVla(ModelConfig())
            self.mean, self.std = (v.astype(np.float32) for v in pool.statistics())
        else:
            self.model, self.mean, self.std, meta = load_checkpoint(resume, raw=True)
            self.step, self.seen = meta["step"], meta["seen"]
        self.rng = np.random.default_rng([settings.seed, 11, self.step])
        self.optimisers = make_optimisers(self.model, settings.rate)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["initial_lr"] = group["lr"]
        self.averaged = {name: p.detach().clone() for name, p in self.model.named_parameters()}

    def run(self, log: Callable[[str], None] = print) -> Path:
        """Train for the settings' minutes; return the last checkpoint."""
        start, saved, first, window = time.monotonic(), time.monotonic(), self.step, []
        while True:
            share = (time.monotonic() - start) / (self.settings.minutes * 60)
            if share >= 1:
                return self.save()
            window.append(self.one_step(min(1.0, (self.step - first + 1) / self.settings.warmup_steps), share))
            if self.step % 50 == 0:
                means = {k: np.mean([w[k] for w in window]) for k in window[0]}
                parts = " ".join(f"{k} {v:.4f}" for k, v in means.items())
                log(f"{time.strftime('%H:%M:%S')} step {self.step} {share:.3f} {parts} pool {len(self.pool.index)}")
                window = []
            if time.monotonic() - saved > self.settings.save_minutes * 60:
                saved = time.monotonic()
                log(f"saved {self.save()}")
                self.pool.refresh()

    def one_step(self, warm: float, share: float) -> dict[str, float]:
        """Take one optimiser step at a rate that follows warm-up, a flat stretch, and a decay at the end."""
        fall = min(1.0, (1.0 - share) / self.settings.decay)
        batch = self.pool.draw(self.settings.batch, self.mean, self.std)
        with torch.autocast("cpu", torch.bfloat16):
            loss, parts = losses(self.model, batch, self.rng, self.settings.draws)
        for optimiser in self.optimisers:
            optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = group["initial_lr"] * warm * fall
            optimiser.step()
        self.step += 1
        self.seen += self.settings.batch
        keep = min(self.settings.average, self.step / (self.step + 10))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.averaged.values()), [p.detach() for p in self.model.parameters()], 1 - keep)
        return parts

    def save(self) -> Path:
        """Write the averaged weights (prefix ``averaged.``) and the raw ones; return the file."""
        path = self.folder / f"step{self.step:06d}.safetensors"
        tensors = {f"raw.{k}": v.detach().contiguous() for k, v in self.model.named_parameters()}
        tensors |= {f"averaged.{k}": v.contiguous() for k, v in self.averaged.items()}
        meta = {
            "step": self.step,
            "seen": self.seen,
            "config": self.model.config.to_dict(),
            "mean": self.mean.tolist(),
            "std": self.std.tolist(),
        }
        part = path.with_suffix(".part")
        save_file(tensors, part, {"vla": json.dumps(meta)})
        part.rename(path)
        return path


def load_checkpoint(path: Path, raw: bool = False) -> tuple[DemoVla, np.ndarray, np.ndarray, dict]:
    """Return the model with averaged (or raw) weights, the normalisation's mean and std (6,), and the metadata."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        meta = json.loads(file.metadata()["vla"])
    prefix = "raw." if raw else "averaged."
    weights = {k.removeprefix(prefix): v for k, v in load_file(path).items() if k.startswith(prefix)}
    model = DemoVla(ModelConfig(**meta["config"]))
    model.load_state_dict(weights, strict=True)
    return model, np.array(meta["mean"], np.float32), np.array(meta["std"], np.float32), meta

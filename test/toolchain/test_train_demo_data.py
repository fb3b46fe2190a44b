"""The demo's training data: what is written is what is read, and labels belong to their colour."""

import numpy as np
import pytest

from vla_runtime.sim.arm import Arm
from vla_runtime.sim.expert import Expert, Motion
from vla_runtime.sim.task import COLOURS, PHRASES
from vla_runtime.toolchain.train_demo.collect import MAX_TICKS, STRIDE, Recorder, collect_expert
from vla_runtime.toolchain.train_demo.records import FIELDS, HORIZON, ShardWriter, read_shard, shard_folders
from vla_runtime.toolchain.train_demo.text import TOKENS, build_tokenizer, encode, phrase_table


@pytest.fixture(scope="module")
def shard(tmp_path_factory):
    root = tmp_path_factory.mktemp("shards")
    writer = ShardWriter(root, "expert-000000")
    recorder = Recorder(Arm(0), Expert(), np.random.default_rng(1))
    lifted = [recorder.expert_episode(seed, writer) for seed in (0, 1)]
    assert all(lifted)
    return read_shard(writer.close())


def test_a_shard_has_every_field_with_a_row_per_observation(shard):
    rows = len(shard["own"])
    assert 20 < rows <= 2 * MAX_TICKS // STRIDE
    for field, (shape, dtype) in FIELDS.items():
        assert shard[field].shape == (rows, *shape) and shard[field].dtype == dtype


def test_a_chunk_starts_where_the_arm_is_and_stays_smooth(shard):
    own = shard["chunks"][np.arange(len(shard["own"])), shard["own"]]
    assert np.abs(own[:, 0] - shard["state"]).max() < 0.45  # servo lag, and the jaws stopped by a cube
    assert np.abs(own[:, 0, :5] - shard["state"][:, :5]).max() < 0.15
    assert np.abs(np.diff(own, axis=1)).max() < 2.4 * 0.02


def test_other_colours_get_other_chunks(shard):
    both = shard["valid"].sum(1) >= 2
    assert both.any()
    for chunks, valid in zip(shard["chunks"][both], shard["valid"][both], strict=True):
        a, b = np.flatnonzero(valid)[:2]
        assert np.abs(chunks[a] - chunks[b]).max() > 0.01


def test_a_half_written_shard_is_not_seen(tmp_path):
    writer = ShardWriter(tmp_path, "expert-000000")
    (tmp_path / ".expert-000000.part").mkdir()
    assert shard_folders(tmp_path) == []
    folder = writer.close()
    assert shard_folders(tmp_path) == [folder]
    np.save(folder / "state.npy", np.zeros((0, 5), np.float32))
    with pytest.raises(ValueError, match=r"state\.npy"):
        read_shard(folder)


def test_collecting_again_keeps_what_is_there_and_repeats_what_is_not(tmp_path):
    lines = []
    collect_expert(tmp_path / "a", 5, 1, lines.append)
    collect_expert(tmp_path / "a", 5, 1, lines.append)
    assert len(lines) == 1
    collect_expert(tmp_path / "b", 5, 1, lines.append)
    a, b = (read_shard(shard_folders(tmp_path / name)[0]) for name in "ab")
    for field in FIELDS:
        assert (np.asarray(a[field]) == np.asarray(b[field])).all(), field


def test_corrections_begin_after_the_committed_commands(tmp_path):
    arm = Arm(0)
    writer = ShardWriter(tmp_path, "policy-000000")

    def stay(arm, committed):
        return np.tile(arm.targets, (HORIZON, 1))

    recorder = Recorder(arm, Expert(), np.random.default_rng(2))
    assert not recorder.policy_episode(3, writer, stay, delay=3, execute=20, longest=60)
    rows = read_shard(writer.close())
    assert len(rows["own"]) == 60 // STRIDE
    own = rows["chunks"][np.arange(len(rows["own"])), rows["own"]]
    for chunk, prefix in zip(own, rows["prefix"], strict=True):
        assert np.abs(chunk[: prefix + 1] - chunk[0]).max() < 1e-6  # the driver's own commands: it stays
        assert np.abs(chunk[-1] - chunk[0]).max() > 0.05  # the expert's: it goes


def test_the_expert_answers_for_every_colour_at_home():
    arm = Arm(7)
    recorder = Recorder(arm, Expert(), np.random.default_rng(0))
    chunks = [recorder.chunk_for(colour, Motion(arm.targets)) for colour in COLOURS]
    assert all(chunk is not None and len(chunk) > HORIZON for chunk in chunks)


def test_tokens_tell_instructions_apart_and_ignore_case_and_punctuation():
    tokenizer = build_tokenizer()
    tokens, masks = phrase_table(tokenizer)
    assert tokens.shape == (len(COLOURS), len(PHRASES), TOKENS)
    assert len({tuple(row) for row in tokens.reshape(-1, TOKENS)}) == len(COLOURS) * len(PHRASES)
    assert masks.sum(-1).min() >= 4
    plain, shouted = (encode(tokenizer, text)[0] for text in ("pick up the red cube", "Pick up the RED cube!"))
    assert (plain == shouted).all()
    with pytest.raises(ValueError, match="20 tokens"):
        encode(tokenizer, "red " * 20)

import json
import shutil
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import yaml
from onnx import numpy_helper

from vla_runtime.cli import main
from vla_runtime.errors import UserError
from vla_runtime.paths import share
from vla_runtime.policy.bundle import load_bundle, sha256_of
from vla_runtime.policy.errors import BundleError, UnprovenEngineError
from vla_runtime.policy.policy import load_policy
from vla_runtime.policy.proof import require_proof
from vla_runtime.toolchain.bundle_files import list_file
from vla_runtime.toolchain.observations import (
    ObservationSet,
    load_observations,
    random_observations,
    save_observations,
)
from vla_runtime.toolchain.parity.budgets import ClosedLoopBudget, load_budgets
from vla_runtime.toolchain.parity.closed_loop import Outcome, compare_closed_loop, judge_pairs
from vla_runtime.toolchain.parity.levels import Level, overall
from vla_runtime.toolchain.parity.prove import Request, _versions, prove
from vla_runtime.toolchain.parity.stages import Recorder, calls_of
from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("parity") / "original")


@pytest.fixture
def copy(original, tmp_path):
    return shutil.copytree(original, tmp_path / "copy")


def edit(bundle, change):
    path = bundle / "policy.yaml"
    content = yaml.safe_load(path.read_text())
    change(content)
    content["files"] = {name: sha256_of(bundle / name) for name in content["files"]}
    path.write_text(yaml.safe_dump(content, sort_keys=False))


def perturb(bundle, stage: str, weight: str, factor: float) -> None:
    model = onnx.load(bundle / f"{stage}.onnx")
    tensor = next(each for each in model.graph.initializer if each.name == weight)
    value = numpy_helper.to_array(tensor)
    noise = np.random.default_rng(1).standard_normal(value.shape).astype(np.float32)
    tensor.CopyFrom(numpy_helper.from_array(value + factor * value.std() * noise, weight))
    (bundle / f"{stage}.onnx").write_bytes(model.SerializeToString())
    edit(bundle, lambda content: None)


def proof(candidate, reference, **changes):
    bundle = load_bundle(candidate)
    base = {"observations": random_observations(bundle.policy, 6), "budgets": load_budgets()}
    return prove(Request(bundle, "onnxruntime", reference=load_bundle(reference), **{**base, **changes}))


def test_the_same_bundle_passes_without_episodes_because_no_action_differs(original):
    record = proof(original, original)
    assert record["verdict"] == "pass" and record["levels"]["closed_loop"]["verdict"] == "implied"
    assert {row["stage"] for row in record["stages"]} == {"vision", "backbone", "action"}


def test_the_record_says_what_ran_each_stage(original):
    assert proof(original, original)["engine_version"].startswith("onnxruntime ")
    engines = {stage: SimpleNamespace(version="abacus 2") for stage in ("vision", "backbone", "action")}
    assert _versions(engines) == "abacus 2"
    engines["backbone"].version = "abacus 2, wooden"
    assert _versions(engines) == "abacus 2 (vision, action); abacus 2, wooden (backbone)"


@pytest.mark.parametrize(("stage", "weight"), [("vision", "patch"), ("backbone", "mix"), ("action", "pose_out")])
def test_a_perturbed_layer_fails_and_its_stage_and_layer_are_named(original, copy, stage, weight):
    perturb(copy, stage, weight, 0.5)
    record = proof(copy, original, per_layer=True)
    assert record["verdict"] == "fail"
    faults = record["levels"]["stages"]["faults"]
    assert faults and all(f"stage '{stage}'" in fault for fault in faults)
    worst = record["levels"]["layers"]["figures"]["layers"][0]
    consumer = {"patch": "map", "mix": "mixed", "pose_out": "pose_raw"}[weight]
    assert (worst["stage"], worst["layer"]) == (stage, consumer)


def test_a_perturbed_bundle_is_refused_before_and_after_parity(original, copy, capsys):
    perturb(copy, "backbone", "mix", 0.5)
    with pytest.raises(UnprovenEngineError, match=r"backbone\.onnx"):
        load_policy(copy)
    assert main(["parity", str(copy), "--reference", str(original), "--count", "4"]) == 1
    assert "stage 'backbone'" in capsys.readouterr().out
    with pytest.raises(UnprovenEngineError, match="verdict is 'fail'"):
        load_policy(copy)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda c: c["cameras"].reverse(), "cameras.0.name: reference 'front', candidate 'wrist'"),
        (lambda c: c["cameras"][1].update(std=[0.4, 0.5, 0.5]), "cameras.1.std"),
        (lambda c: c["action"]["mean"].__setitem__(2, 0.1), "action.mean.2: reference 0.0, candidate 0.1"),
        (lambda c: c["state"]["joints"].reverse(), "state.joints.0"),
        (lambda c: c.update(dt_s=0.04), "dt_s: reference 0.02, candidate 0.04"),
        (lambda c: c["sampler"].update(steps=4), "sampler.steps"),
    ],
)
def test_policies_that_mean_different_things_fail_by_field(original, copy, change, named):
    edit(copy, change)
    record = proof(copy, original)
    assert record["verdict"] == "fail" and list(record["levels"]) == ["contract"]
    assert any(named in fault for fault in record["levels"]["contract"]["faults"])


def test_a_wrong_normalisation_shows_against_the_checkpoints_own_answers(original, copy):
    policy = load_policy(original)
    observations = random_observations(policy.bundle.policy, 4)
    answers = np.stack([policy.infer(o, seed=i).actions for i, o in enumerate(observations.observations)])
    recorded = ObservationSet(observations.observations, "checkpoint", observations.seeds, answers)
    assert proof(original, original, checkpoint=recorded)["levels"]["checkpoint"]["verdict"] == "pass"
    edit(copy, lambda content: content["state"].update(mean=[0.4] * 6))
    record = proof(copy, copy, checkpoint=recorded)
    assert record["verdict"] == "fail" and record["levels"]["checkpoint"]["faults"]


def answered(bundle, count=2):
    """Observations with every tensor that the bundle's stages read and gave, as a checkpoint's own code would keep."""
    recorder = Recorder()
    policy = load_policy(bundle, wrap=recorder.wrap)
    made = random_observations(policy.bundle.policy, count)
    rows = []
    for index, observation in enumerate(made.observations):
        recorder.calls.clear()
        policy.infer(observation, seed=index)
        first = {call.stage: call for call in reversed(recorder.calls)}
        rows.append({name: value for call in first.values() for name, value in (call.inputs | call.outputs).items()})
    tensors = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    return ObservationSet(made.observations, "checkpoint", made.seeds, None, tensors)


def test_a_perturbed_stage_shows_against_the_checkpoints_own_stages(original, copy):
    known = answered(original)
    assert proof(original, original, checkpoint=known)["levels"]["checkpoint_stages"]["verdict"] == "pass"
    perturb(copy, "backbone", "mix", 0.5)
    record = proof(copy, copy, checkpoint=known)  # compared with itself alone it would pass
    assert record["verdict"] == "fail" and record["levels"]["stages"]["verdict"] == "pass"
    faults = record["levels"]["checkpoint_stages"]["faults"]
    assert faults and all("stage 'backbone'" in fault for fault in faults)


def test_the_demo_says_what_pytorch_said():
    bundle = load_bundle(share("bundles", "demo-fp32"))
    known = load_observations(bundle.path / "reference.safetensors", bundle.policy)
    assert set(known.tensors) >= {"images", "context_keys", "v"} and len(known) == 16
    policy = load_policy(bundle)
    for observation, seed, answer in zip(known.observations[:2], known.seeds, known.actions):
        assert policy.infer(observation, seed=int(seed)).actions == pytest.approx(answer, abs=1e-5)


@pytest.mark.parametrize("name", ["demo", "demo-fp32"])
def test_the_demos_record_covers_its_files_and_was_held_to_pytorch(name):
    bundle = load_bundle(share("bundles", name))
    assert set(bundle.hashes()) >= {"vision.onnx", "backbone.onnx", "action.onnx", "reference.safetensors"}
    levels = require_proof(bundle, "onnxruntime").content["levels"]
    assert levels["checkpoint"]["verdict"] == levels["checkpoint_stages"]["verdict"] == "pass"


def test_stages_of_a_checkpoint_need_their_inputs(original):
    known = answered(original)
    tensors = {name: value for name, value in known.tensors.items() if name != "image_tokens"}
    with pytest.raises(UserError, match=r"stage 'backbone' but not its inputs \['image_tokens'\]"):
        calls_of(load_bundle(original).policy, tensors)


def keep_answers(bundle):
    save_observations(bundle / "reference.safetensors", answered(bundle), "test")
    return list_file(bundle, "reference.safetensors")


def test_a_byte_changed_late_in_the_checkpoints_answers_refuses_the_bundle(copy):
    keep_answers(copy)
    path = copy / "reference.safetensors"
    content = bytearray(path.read_bytes())
    assert len(content) > 70_000
    content[70_000] ^= 1
    path.write_bytes(content)
    with pytest.raises(BundleError, match=r"'reference\.safetensors' has changed"):
        load_bundle(copy)


def test_answers_that_the_bundle_does_not_vouch_for_prove_nothing(copy, capsys):
    save_observations(copy / "reference.safetensors", answered(copy), "test")
    assert main(["parity", str(copy), "--count", "2", "--dry-run"]) == 1
    assert "'reference.safetensors' is used but has no SHA-256" in capsys.readouterr().err


def test_the_command_uses_the_bundles_own_answers_whatever_else_it_compares_on(copy, tmp_path):
    keep_answers(copy)
    target = tmp_path / "out.json"
    for more in ([], ["--observations", str(tmp_path / "plain.safetensors")]):
        save_observations(tmp_path / "plain.safetensors", random_observations(load_bundle(copy).policy, 2), "test")
        assert main(["parity", str(copy), "--count", "2", "--dry-run", "--json", str(target), *more]) == 0
        levels = json.loads(target.read_text())["levels"]
        assert levels["checkpoint_stages"]["verdict"] == "pass"


def test_small_differences_need_episodes_and_without_them_it_is_inconclusive(original, copy):
    perturb(copy, "backbone", "mix", 0.01)
    record = proof(copy, original)
    assert record["verdict"] == "inconclusive"
    assert record["levels"]["closed_loop"] == {"verdict": "missing", "faults": ["no episodes were run"], "figures": {}}


def scripted(reference_fails: set, candidate_fails: set, reference):
    def episode(policy, seed):
        failed = seed in (reference_fails if policy is reference else candidate_fails)
        return Outcome(not failed, "missed grasp" if failed else "success")

    return episode


BUDGET = ClosedLoopBudget(margin=0.02, confidence=0.95, episodes=200, implied_below_rad=1e-4)


@pytest.mark.parametrize(
    ("reference_fails", "candidate_fails", "verdict"),
    [
        (set(range(10)), set(range(10)), "pass"),
        (set(), set(range(40)), "fail"),
        (set(range(10)), set(range(8, 18)), "inconclusive"),
        (set(range(20)), set(), "pass"),
    ],
)
def test_closed_loop_verdicts(reference_fails, candidate_fails, verdict):
    reference, candidate = object(), object()
    level = compare_closed_loop(
        reference, candidate, scripted(reference_fails, candidate_fails, reference), range(200), BUDGET
    )
    assert level.verdict == verdict
    figures = level.figures
    assert figures["episodes"] == 200 and figures["successes"]["candidate"] == 200 - len(candidate_fails)
    assert figures["how"]["candidate"].get("missed grasp", 0) == len(candidate_fails)
    if verdict == "inconclusive":
        assert figures["episodes_needed"] > 200 and str(figures["episodes_needed"]) in level.faults[0]


def test_a_reference_that_differs_from_itself_is_a_broken_harness():
    flips = iter(range(10**6))
    level = compare_closed_loop(object(), object(), lambda p, s: Outcome(next(flips) % 2 == 0, "x"), range(5), BUDGET)
    assert level.verdict == "fail" and "harness is broken" in level.faults[0]


def test_failing_in_another_way_is_shown_even_at_equal_success():
    pairs = [(Outcome(False, "missed grasp"), Outcome(False, "wrong cube"))] * 10
    assert judge_pairs(pairs, BUDGET).figures["how"] == {
        "reference": {"missed grasp": 10},
        "candidate": {"wrong cube": 10},
    }


def test_prove_runs_episodes_with_reference_and_candidate(original, copy):
    perturb(copy, "backbone", "mix", 0.01)
    seen = []

    def episode(policy, seed):
        seen.append((policy.bundle.path, seed))
        return Outcome(True, "success")

    record = proof(copy, original, episode=episode, seeds=range(200))
    assert record["verdict"] == "pass" and record["episodes"] == 200 and set(record["ci"]) == {"reference", "candidate"}
    assert {path for path, _ in seen} == {original, copy}


@pytest.mark.parametrize(
    ("verdicts", "verdict"),
    [
        ({"stages": "pass", "closed_loop": "implied"}, "pass"),
        ({"stages": "pass"}, "inconclusive"),
        ({"stages": "pass", "closed_loop": "inconclusive"}, "inconclusive"),
        ({"stages": "fail", "closed_loop": "pass"}, "fail"),
        ({"stages": "pass", "closed_loop": "pass", "checkpoint": "fail"}, "fail"),
    ],
)
def test_verdict_adds_up(verdicts, verdict):
    assert overall([Level(name, each) for name, each in verdicts.items()], ["stages", "closed_loop"]) == verdict


def test_a_missing_budget_never_passes(tmp_path, capsys, original):
    content = yaml.safe_load((load_budgets.__globals__["share"]("config", "parity_budgets.yaml")).read_text())
    del content["stages"]["cosine_worst"]
    path = tmp_path / "budgets.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(UserError, match=r"stages\.cosine_worst.*never passes"):
        load_budgets(path)
    assert main(["parity", str(original), "--budgets", str(path), "--dry-run"]) == 1
    with pytest.raises(UserError, match="no such file"):
        load_budgets(tmp_path / "none.yaml")


def test_command_writes_record_and_report_and_passes_its_promised_form(copy, tmp_path):
    (copy / "parity.json").unlink()
    target = tmp_path / "out.json"
    assert main(["parity", str(copy), "--count", "3", "--json", str(target)]) == 0
    record = json.loads(target.read_text())
    assert {"verdict", "levels", "stages", "episodes", "ci"} <= set(record)
    assert json.loads((copy / "parity.json").read_text())["records"] == [record]
    report = (copy / "parity_report.md").read_text()
    assert report.startswith("# Parity: pass") and (copy / "parity_positions.png").stat().st_size > 1000
    load_policy(copy)


def test_a_quantised_bundle_is_not_compared_with_itself(copy, capsys):
    made_from = {"name": "the original", "backbone.onnx": "42e0b4c7"}
    edit(copy, lambda content: content["provenance"].update(quantized_from=made_from))
    assert main(["parity", str(copy)]) == 1
    told = capsys.readouterr().err
    assert "was made by quantising 'the original': compared" in told and "--reference" in told


def test_a_quantised_bundle_is_no_reference(original, copy, capsys):
    edit(copy, lambda content: content["provenance"].update(quantized_from="the original"))
    assert main(["parity", str(original), "--reference", str(copy), "--dry-run"]) == 1
    assert "what it lost would not count" in capsys.readouterr().err


def test_observations_come_back(original, tmp_path):
    policy = load_bundle(original).policy
    made = random_observations(policy, 3, seed=5)
    answers = np.zeros((3, 50, 6))
    save_observations(tmp_path / "o.safetensors", ObservationSet(made.observations, "x", made.seeds, answers), "test")
    back = load_observations(tmp_path / "o.safetensors", policy)
    assert len(back) == 3 and np.array_equal(back.actions, answers) and np.array_equal(back.seeds, made.seeds)
    for a, b in zip(made.observations, back.observations):
        assert a.instruction == b.instruction and a.state == pytest.approx(b.state, abs=1e-6)
        assert all(np.array_equal(a.images[name], b.images[name]) for name in a.images)


def test_observations_of_another_policy_or_no_such_file_are_named(original, tmp_path):
    policy = load_bundle(original).policy
    save_observations(tmp_path / "o.safetensors", random_observations(policy, 2), "test")
    other = policy.model_copy(update={"cameras": [policy.cameras[0].model_copy(update={"name": "top"})]})
    with pytest.raises(UserError, match=r"image\.top"):
        load_observations(tmp_path / "o.safetensors", other)
    with pytest.raises(UserError, match="no such file"):
        load_observations(tmp_path / "none.safetensors", policy)
    (tmp_path / "bad.safetensors").write_bytes(b"junk")
    with pytest.raises(UserError, match="not readable"):
        load_observations(tmp_path / "bad.safetensors", policy)

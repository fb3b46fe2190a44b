"""A bag that is damaged is the user's to mend: one line that says so, never a traceback."""

from pathlib import Path

import pytest

from vla_runtime.errors import UserError
from vla_runtime.toolchain.replay.bagmap import BagMap
from vla_runtime.toolchain.replay.exact import read_traces
from vla_runtime.toolchain.replay.recording import read_recording
from vla_runtime.toolchain.run_log import read_run

SOUND = """rosbag2_bagfile_information:
  version: 5
  storage_identifier: mcap
  relative_file_paths: [run.mcap]
  duration: {nanoseconds: 0}
  starting_time: {nanoseconds_since_epoch: 0}
  message_count: 0
  topics_with_message_count: []
  compression_format: ""
  compression_mode: ""
"""


READERS = [read_traces, read_run, lambda bag: read_recording(bag, BagMap())]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("metadata", "data"),
    [
        ("rosbag2_bagfile_information: {version: 5", b""),
        ("foo: 1", b""),
        (SOUND, None),
        (SOUND, b"not an MCAP file, though its name says so" * 10),
        (SOUND, b"\x89MCAP0\r\n"),
    ],
    ids=["broken_yaml", "no_bag_information", "lost_file", "another_file", "cut_off_after_the_magic"],
)
def test_it_is_named_in_one_line(read, metadata: str, data: bytes | None, tmp_path: Path):
    (tmp_path / "metadata.yaml").write_text(metadata, encoding="utf-8")
    if data is not None:
        (tmp_path / "run.mcap").write_bytes(data)
    with pytest.raises(UserError, match="cannot be read"):
        read(tmp_path)


@pytest.mark.parametrize("read", READERS)
def test_the_folder_above_a_bag_leads_to_it(read, tmp_path: Path):
    with pytest.raises(UserError, match="not a bag.*ended with Ctrl-C"):
        read(tmp_path)
    (tmp_path / "bag").mkdir()
    (tmp_path / "bag" / "metadata.yaml").write_text(SOUND, encoding="utf-8")
    with pytest.raises(UserError, match=f"not a bag.*did you mean {tmp_path / 'bag'}"):
        read(tmp_path)

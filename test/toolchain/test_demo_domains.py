"""Programs that start at the same instant are in domains of their own."""

import subprocess
import sys

import pytest

from vla_runtime.errors import UserError
from vla_runtime.toolchain.demo import domains
from vla_runtime.toolchain.demo.domains import held_domain, held_if_free

HOLDER = """
import sys
from vla_runtime.toolchain.demo.domains import held_domain
with held_domain() as domain:
    print(domain, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def few_domains(monkeypatch, tmp_path):
    monkeypatch.setattr(domains, "DOMAINS", range(20, 23))
    monkeypatch.setattr(domains.tempfile, "tempdir", str(tmp_path))


def test_each_holder_has_another_until_none_is_left():
    with held_domain() as first, held_domain() as second, held_domain() as third:
        assert {first, second, third} == {20, 21, 22}
        with pytest.raises(UserError, match="20 to 22 is free"), held_domain():
            pass
    with held_domain() as again:
        assert again in (first, second, third)


def test_another_process_keeps_out_and_its_death_frees():
    holder = subprocess.Popen(
        [sys.executable, "-c", f"import tempfile; tempfile.tempdir = {domains.tempfile.tempdir!r}\n{HOLDER}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    taken = int(holder.stdout.readline())
    domains.DOMAINS = range(taken, taken + 1)  # undone with the fixture's
    with pytest.raises(UserError, match="is free"), held_domain():
        pass
    holder.kill()
    holder.wait(10)
    with held_domain() as domain:
        assert domain == taken


def test_a_domain_with_nodes_in_it_is_not_taken():
    with held_domain(lambda domain: domain != 21) as domain:
        assert domain == 21
    with pytest.raises(UserError, match=r"nodes in \[2"), held_domain(lambda domain: True):
        pass


def test_a_chosen_domain_is_held_where_nobody_else_does():
    with held_domain(lambda domain: domain != 21), held_if_free(21) as chosen:
        assert chosen == 21
    with held_if_free(21), held_domain() as other:
        assert other != 21

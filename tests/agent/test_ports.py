"""Blocks of ports: each agent of a machine has its own."""

import socket
from pathlib import Path

from agent.ports import BLOCK, HIGHEST, LOWEST, free_block, held


def test_agents_of_one_machine_have_different_blocks(tmp_path: Path) -> None:
    """Also when both begin their search at the same place."""
    first, marker = free_block(tmp_path)
    second, other = free_block(tmp_path)
    try:
        assert LOWEST <= first < first + BLOCK < HIGHEST
        assert abs(first - second) > BLOCK
        assert held(first) is None
    finally:
        marker.close()
        other.close()
    again = held(first)
    assert again is not None
    again.close()


def test_a_block_with_a_listener_in_it_is_passed_over(tmp_path: Path) -> None:
    """Whoever it is: a gang could not meet there."""
    base, marker = free_block(tmp_path)
    marker.close()
    with socket.create_server(("127.0.0.1", base + 7)):
        other, marker = free_block(tmp_path)
        marker.close()
    assert other != base

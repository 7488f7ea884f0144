"""Nodes for torch's process groups: one for each world that this process is in. Groups of one world
share it."""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import uuid
from typing import Any

from ._comm import Communicator
from ._errors import Error
from ._node import Node, Rail


class World:
    """A node, and the name of the cluster that the ranks of one job form."""

    def __init__(self, token: str, node: Node, rank: int) -> None:
        self.token, self.node, self.rank = token, node, rank
        self.groups = 0


worlds: dict[str, World] = {}


def rails() -> list[Rail]:
    """The rails of this process's nodes, and what they have carried: a list of polyrail.Rail."""
    return [r for world in worlds.values() for r in world.node.rails]


def _master(store: Any) -> str:
    """Where the ranks meet: the host of torch's store, which init_method="tcp://..." alone names, or else
    MASTER_ADDR."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return getattr(store, "host", "") or os.environ.get("MASTER_ADDR", "")


def _local_address(master: str) -> str:
    """An address of this host that the others reach: the one that leads to the master. Where the master's name
    leads to loopback, as Debian's /etc/hosts has a host's own name, all of them: others may know it by the network."""
    try:
        found = socket.getaddrinfo(master or None, 9, type=socket.SOCK_DGRAM)
    except OSError:
        found = []
    for family, type_, protocol, _, address in found:
        try:
            with socket.socket(family, type_, protocol) as s:
                s.connect(address)  # sends nothing
                own: str = s.getsockname()[0]
        except OSError:
            continue  # there is no way to that address: the name may have others
        return "0.0.0.0" if _loopback(own) and not _loopback(master) else own
    return "127.0.0.1"


def _loopback(host: str) -> bool:
    """Whether an address, or a name as everybody has it, is loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in ("", "localhost")


def _rails() -> list[str]:
    configured = os.environ.get("POLYRAIL_RAILS") or os.environ.get("POLYRAIL_RAIL")
    if configured:
        return configured.split()
    interfaces = [name for _, name in socket.if_nameindex() if name != "lo"]
    if not interfaces:
        return ["lo=tcp:lo"]
    return ["all=tcp:auto"]


def _ascend(ranks: list[int]) -> bool:
    return all(a < b for a, b in zip(ranks, ranks[1:]))


def join_world(store: Any, rank: int, size: int) -> tuple[World, str]:
    """Finds the world that all members of a group are in, or makes one of them.

    Each member says which worlds it is in, and its rank there. The first one chooses, and names the
    communicator: its ranks will have the order of those of the world.
    """
    store.set(f"polyrail/in/{rank}", json.dumps({w.token: w.rank for w in worlds.values()}))
    if rank == 0:
        said = [json.loads(store.get(f"polyrail/in/{r}")) for r in range(size)]
        fit = (t for t in said[0] if _ascend([ranks.get(t, -1) for ranks in said]))
        token = next(fit, uuid.uuid4().hex)
        store.set("polyrail/world", f"{token} {uuid.uuid4().hex}")
    token, name = store.get("polyrail/world").decode().split()
    world = worlds.get(token)
    if world is None:
        address = _local_address(_master(store))
        bind = f"[{address}]:0" if ":" in address else f"{address}:0"
        join = store.get("polyrail/seed").decode() if rank else None
        node = Node(
            f"rank-{rank:06d}",
            bind=None if os.environ.get("POLYRAIL_BIND") else bind,
            join=join,
            rails=_rails(),
            cluster=f"torch-{token}",
            max_in_flight=os.environ.get("POLYRAIL_MAX_IN_FLIGHT") or 64,
        )
        if rank == 0:
            store.set("polyrail/seed", node.address)
        world = worlds[token] = World(token, node, rank)
    world.groups += 1
    return world, name


def leave(world: World, comm: Communicator) -> None:
    """What becomes of a group that nobody refers to any more."""
    try:
        if comm.error is not None:
            comm.abort()
        comm.close(timeout=5)
    except Error:
        pass  # the others are gone already
    release(world)


def release(world: World) -> None:
    """One group less: without any the world's node is closed."""
    world.groups -= 1
    if world.groups == 0:
        worlds.pop(world.token, None)
        try:
            world.node.close(timeout=5)
        except Error:
            pass

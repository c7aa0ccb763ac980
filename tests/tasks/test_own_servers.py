from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from flask import Flask
from flask_sqlalchemy import SQLAlchemy

from flask_spiderpool import SpiderPool
from flask_spiderpool.tasks.make import _own_urls
from flask_spiderpool.tasks.own_servers import own_servers


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://localhost:6380/0", {("localhost", 6380)}),
        ("rediss://user:pw@cache.example", {("cache.example", 6379)}),
        ("postgresql+psycopg://u:p@db.example/x", {("db.example", 5432)}),
        ("postgresql+psycopg://u:p@[::1]:5433/x", {("::1", 5433)}),
        ("amqp://a:1;amqp://b", {("a", 1), ("b", 5672)}),
        ("db+postgresql://u:p@db.example/x", {("db.example", 5432)}),
        ("sqla+postgresql://u:p@db.example:6000/x", {("db.example", 6000)}),
        ("cache+memcached://a:11211;b", {("a", 11211), ("b", 11211)}),
        ("mongodb://u:p@m1:27018,m2/celery", {("m1", 27018), ("m2", 27017)}),
        ("postgresql+psycopg://u:p@h1:5432,h2:5433/x", {("h1", 5432), ("h2", 5433)}),
        ("postgresql+psycopg://u:p@h1,h2/x", {("h1", 5432), ("h2", 5432)}),
        ("postgresql+psycopg://u:p@/x?host=h1:6000&host=h2", {("h1", 6000), ("h2", 5432)}),
        (
            "postgresql+psycopg://u:p@/x?host=h1,::1&port=6000",
            {("h1", 6000), ("::1", 6000), ("h1", 5432), ("::1", 5432)},
        ),
        ("postgresql+psycopg://u:p@/x?hostaddr=10.0.0.3", {("10.0.0.3", 5432)}),
        ("postgresql+psycopg://u:p#a/b?c@db.example:6000/x", {("db.example", 6000)}),
        ("postgresql+psycopg:///x", {("localhost", 5432)}),
        ("postgresql+psycopg:///x?host=/run/postgresql", {("localhost", 5432)}),
        ("redis://", {("localhost", 6379)}),
        ("redis://:6380/1", {("localhost", 6380)}),
        ("DB+MySQL+pymysql://u@db.example", {("db.example", 3306)}),
        ("sqlite:////tmp/x.db", set()),
        ("filesystem://", set()),
        ("memory://", set()),
        ("unix:///run/redis.sock", set()),
        ("redis://host:port/0", set()),
        ("", set()),
        (None, set()),
    ],
)
def test_host_and_port_of_each_server(url: str | None, expected: set[tuple[str, int]]):
    """Only what listens on a port can be crawled by mistake, so only that is named."""
    assert own_servers([url]) == expected


def test_the_hosts_configuration_is_read_too(tmp_path: Path) -> None:
    """Not only the pool's servers are out of reach, but all whose URLs stand in the app's configuration."""
    app = Flask("host", instance_path=str(tmp_path))
    app.config.update(
        SQLALCHEMY_DATABASE_URI=f"sqlite:///{tmp_path}/host.db",
        SQLALCHEMY_BINDS={
            "books": sa.make_url("postgresql+psycopg://u:p@books.example/x"),
            "users": {"url": "postgresql+psycopg://u@users.example/x"},
        },
        SESSION_REDIS_URL="redis://sessions.example",
        CELERY={"broker_url": "amqp://a;amqp://b:1", "result_backend": "db+postgresql://results.example/x"},
        HOMEPAGE="https://site.example/",
    )
    SQLAlchemy(app)
    SpiderPool(app)
    state = app.extensions["spiderpool"]
    found = own_servers(_own_urls(state.celery(), state))
    state.close()
    assert found == {
        ("books.example", 5432),
        ("users.example", 5432),
        ("sessions.example", 6379),
        ("a", 5672),
        ("b", 1),
        ("results.example", 5432),
    }

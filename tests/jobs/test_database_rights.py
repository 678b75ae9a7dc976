"""Workers and commands need no more rights in PostgreSQL than docs/servers.md gives them."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url

from jobs.database import Database, upgrade
from jobs.records import Counts
from jobs.store import Store
from tests.support import postgres
from tests.support.job_store import ROWS, new_job

PAGE = (Path(__file__).parents[2] / "docs" / "servers.md").read_text("utf-8")


def test_the_rights_of_the_page_suffice() -> None:
    url = postgres.create_database()
    role = f"worker_{uuid.uuid4().hex[:8]}"
    try:
        upgrade(url)
        grants = re.findall(r"^(GRANT .*) TO pagemill;$", PAGE, re.MULTILINE)
        engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"))
        with engine.begin() as connection:
            connection.exec_driver_sql(f"CREATE ROLE {role}")
            for granted in grants:
                connection.exec_driver_sql(f"{granted} TO {role}")
        engine.dispose()
        database = Database(f"{url}&options=-crole%3D{role}")
        database.check_revision()
        store = Store(database)
        assert len(grants) == 2
        job = store.insert_job(new_job((2,)))
        lease = store.claim_chunk("w", job.model)
        assert lease is not None
        assert store.commit_chunk(lease, lease.chunk_id, Counts(completed=ROWS))
        store.request_cancel(job.id)
        with pytest.raises(Exception, match="permission denied"), database.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE more (x int)")
        with pytest.raises(Exception, match="must be owner"), database.begin() as connection:
            connection.exec_driver_sql("DROP TABLE jobs CASCADE")
        database.close()
    finally:
        postgres.drop_database(url)
        postgres.drop_role(role)

"""The S3 server of the bench; s3fs itself is run by the bench."""

import os
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import pytest


@pytest.fixture
def bench(script, monkeypatch):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    return script("remote_s3")


def test_versions_ranges_breaks_and_errors(bench):
    opener = build_opener(ProxyHandler({}))
    with bench.serving() as server:
        url = os.environ["AWS_ENDPOINT_URL"]

        def get(path: str, **headers: str) -> tuple[int, bytes]:
            with opener.open(Request(url + path, headers=headers)) as answer:
                return answer.status, answer.read()

        assert get("/b/d.jsonl") == (200, bench.NEW)
        assert get("/b/d.jsonl?versionId=1") == (200, bench.OLD)
        assert get("/b/d.jsonl", Range="bytes=5-9") == (206, bench.NEW[5:10])
        server.breaks = [3]
        with pytest.raises(Exception, match="IncompleteRead"):
            get("/b/d.jsonl")
        for path, status in (("/b/none", 404), ("/b/secret.jsonl", 403)):
            with pytest.raises(HTTPError) as error:
                get(path)
            assert error.value.code == status
            assert b"<Code>" in error.value.read()
            error.value.close()

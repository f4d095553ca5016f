"""Bodies that some programs send and this server does not take: the answer says what to send instead."""

import gzip

import pytest
from starlette.testclient import TestClient

PART = b'--b\r\nContent-Disposition: form-data; name="photo"\r\nContent-Type: image/png\r\n\r\n\x89PNG\r\n--b--\r\n'
FORM = {"content-type": "multipart/form-data; boundary=b"}


@pytest.mark.parametrize("path", ["/api/v1/search/photo", "/search"])
def test_part_without_a_file_name_is_named(client: TestClient, path: str):
    answer = client.post(path, content=PART, headers=FORM)
    assert answer.status_code == 422
    assert "body/photo: this part has no file name; send the photo as a file" in answer.text


@pytest.mark.parametrize("encoding", ["gzip", "GZip", "br", "deflate, gzip"])
def test_compressed_body_is_refused(client: TestClient, encoding: str):
    headers = {"content-type": "application/json", "content-encoding": encoding}
    answer = client.post("/api/v1/search", content=gzip.compress(b"{}"), headers=headers)
    assert answer.status_code == 400
    assert "the body is compressed; send it as it is, without Content-Encoding" in answer.text


def test_identity_is_no_compression(client: TestClient):
    answer = client.post("/api/v1/search", content=b"{}", headers={"content-encoding": "identity"})
    assert "compressed" not in answer.text

"""Kaggle's API on loopback, as far as kaggle and kagglehub ask it.

They ask for kernels, datasets and competitions. The clients are pointed here as at a
proxy, so request lines hold whole addresses.
"""

import http.server
import io
import json
import tempfile
import threading
import zipfile
from pathlib import Path
from unittest import mock
from urllib.parse import quote, unquote, urlsplit

import kagglehub  # noqa: F401 - its log keeps the stream that it finds when imported
import pytest

from kaggle_tfr.kaggle import upload

USER, DATE = "ada", "2026-08-01T12:00:00Z"
# Of the owner and of the slug, of which the last may contain both.
NAME_KEYS = ("ownerSlug", "userName", "datasetSlug", "kernelSlug", "slug")


class Kaggle:
    """The requests the stub received, and its prepared answers.

    kernels: versions by "owner/slug", each the request as sent.
    statuses: a kernel's status at each request, the last repeated; default COMPLETE.
    outputs: the folder whose files a kernel's session has left.
    datasets: {file: bytes} by "owner/slug"; competitions: by slug; models: by
    "owner/model/framework/variation".
    missing: the HTTP status for a missing dataset; 403 where it could be private.
    lost_upload: a file that datasets lack; "": they are not made, without an error.
    errors: (HTTP status, which may be 200, and text) by method.
    downloaded: names of the files of datasets that were requested, "" for all of one.
    created: the last request for a dataset.
    """

    def __init__(self):
        self.kernels, self.statuses, self.outputs = {}, {}, {}
        self.datasets, self.blobs, self.calls = {}, {}, []
        self.competitions, self.models, self.errors = {}, {}, {}
        self.on_save, self.downloaded = None, []
        self.lost_upload, self.missing, self.invalid_sources = None, 404, []

    def answer(self, method, request):
        """(status, body) for one call of the API."""
        self.calls.append(method)
        if method in self.errors:
            status, text = self.errors[method]
            return status, {"code": status, "error": text, "message": text}
        parts = [request.get(key) for key in NAME_KEYS]
        try:
            slug = "/".join(filter(None, parts))
            return getattr(self, f"_{method}")(slug, request)
        except (AttributeError, KeyError, ValueError) as error:
            # No 5xx and no silence: the client would try again for minutes.
            return _fail(400, f"{method}: {error!r}")

    def _SaveKernel(self, slug, request):  # noqa: N802
        if slug.split("/")[0] != USER:
            return _fail(403, "Permission 'kernels.update' was denied")
        versions = self.kernels.setdefault(slug, [])
        versions.append(request)
        if self.on_save:
            self.on_save(request)
        return 200, {
            "versionNumber": len(versions),
            "invalidDatasetSources": self.invalid_sources,
        }

    def _GetKernelSessionStatus(self, slug, _):  # noqa: N802
        if slug not in self.kernels:
            return _fail(404, "Not Found")
        left = self.statuses.get(slug, ["COMPLETE"])
        status = left.pop(0) if len(left) > 1 else left[0]
        failure = "" if status == "COMPLETE" else "the notebook threw an exception"
        return 200, {"status": status, "failureMessage": failure}

    def _ListKernelSessionOutput(self, slug, request):  # noqa: N802
        root = Path(self.outputs.get(slug, "/nowhere"))
        names = sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())
        page, more = _page(names, request)
        files = [{"url": _url("output", slug, n), "fileName": n} for n in page]
        return 200, {"files": files, "log": "[]", "nextPageToken": more}

    def _GetDatasetStatus(self, slug, _):  # noqa: N802
        if slug in self.datasets:
            return 200, {"status": "READY"}
        return _fail(self.missing, "Not Found")

    def _StartBlobUpload(self, _, request):  # noqa: N802
        token = f"token-{len(self.blobs)}"
        self.blobs[token] = {"name": request["name"]}
        return 200, {"token": token, "createUrl": f"http://localhost/upload/{token}"}

    def _CreateDataset(self, slug, request):  # noqa: N802
        self.created = request
        blobs = [self.blobs[file["token"]] for file in request["files"]]
        files = {blob["name"]: blob["data"] for blob in blobs}
        files.pop(self.lost_upload, None)
        if self.lost_upload != "":
            self.datasets[slug] = files
        return 200, {"status": "ok", "url": f"https://www.kaggle.com/{slug}"}

    def _CreateDatasetVersion(self, slug, request):  # noqa: N802
        return self._CreateDataset(slug, request["body"])

    def _ListDatasetFiles(self, slug, request):  # noqa: N802
        if slug not in self.datasets:
            return _fail(self.missing, "Not Found")
        files = self.datasets[slug]
        page, more = _page(list(files), request)
        listed = [
            {"name": n, "totalBytes": len(files[n]), "creationDate": DATE} for n in page
        ]
        return 200, {"datasetFiles": listed, "nextPageToken": more}

    def _GetDatasetMetadata(self, *_):  # noqa: N802
        return 200, {"info": {"licenses": [{"name": "unknown"}]}}

    def _GetDataset(self, slug, _):  # noqa: N802
        if slug not in self.datasets:
            return _fail(self.missing, "Denied")
        owner, name = slug.split("/")
        return 200, {"ownerRef": owner, "ref": name, "currentVersionNumber": 1}

    def _DownloadDataFiles(self, _, request):  # noqa: N802
        slug = request["competitionName"]
        if slug not in self.competitions:
            return _fail(404, "Denied")
        return 302, _url("archive", slug, "all.zip")

    def _DownloadDataset(self, slug, request):  # noqa: N802
        name = request.get("fileName", "")
        self.downloaded.append(name)
        if not name:
            return 302, _url("archive", slug, "all.zip")
        if name not in self.datasets[slug]:
            return _fail(404, "Not Found")
        return 302, _url("dataset", slug, name)

    def _ListTreeDatasetFiles(self, *_):  # noqa: N802
        # kagglehub lists a missing file as if it were a folder.
        return 200, {"files": [], "directories": [], "nextPageToken": ""}

    def _GetModelInstance(self, _, request):  # noqa: N802
        if _name_model(request) not in self.models:
            return _fail(404, "Not Found")
        return 200, {"versionNumber": 1}

    def _ListModelInstanceVersionFiles(self, _, request):  # noqa: N802
        names = self.models[_name_model(request)]
        return 200, {"files": [{"name": name} for name in names], "nextPageToken": ""}

    def _DownloadModelInstanceVersion(self, _, request):  # noqa: N802
        return 302, _url("model", _name_model(request), request["path"])

    def read(self, kind, source, name):
        """Return the content of one of the addresses above."""
        if kind == "output":
            return Path(self.outputs[source], name).read_bytes()
        if kind == "archive":
            return _zip({**self.datasets, **self.competitions}[source])
        return {**self.datasets, **self.models}[source][name]


def _name_model(request):
    """Return "owner/model/framework/variation"."""
    framework = request["framework"].lower().removeprefix("model_framework_")
    names = request["ownerSlug"], request["modelSlug"], framework
    return "/".join([*names, request["instanceSlug"]])


def _url(kind, source, name):
    return f"http://localhost/{kind}/{quote(source, safe='')}/{quote(name)}"


def _zip(files):
    """Return a ZIP archive of {name: bytes}."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name, data in files.items():
            file.writestr(name, data)
    return archive.getvalue()


def _fail(code, message):
    return code, {"code": code, "message": message}


def _page(names, request):
    start = int(request.get("pageToken") or 0)
    end = start + min(request.get("pageSize", 20), 200)
    return names[start:end], str(end) if end < len(names) else ""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self._body() or b"{}")
        status, body = self.server.kaggle.answer(
            urlsplit(self.path).path.split("/")[-1], request
        )
        headers = {"Location": body} if status == 302 else {}
        headers |= {"Content-Type": "application/json"}
        self._send(status, json.dumps(body).encode(), headers)

    def do_PUT(self):
        token = urlsplit(self.path).path.split("/")[-1]
        self.server.kaggle.blobs[token]["data"] = self._body()
        self._send(200, b"")

    def do_GET(self):
        words = urlsplit(self.path).path.strip("/").split("/", 2)
        data = self.server.kaggle.read(*map(unquote, words))
        self._send(200, data, {"Last-Modified": "Sat, 01 Aug 2026 12:00:00 GMT"})

    def _body(self):
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _send(self, status, body, headers=()):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(name="kaggle")
def fixture_kaggle(tmp_path, monkeypatch):
    """The stub, with this process's environment sending the real client to it."""
    home = tmp_path / "home"
    home.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.kaggle, server.daemon_threads = Kaggle(), True
        # The client hangs up on what it need not fetch.
        server.handle_error = mock.Mock()
        environment = {
            "KAGGLE_API_ENVIRONMENT": "LOCALHOST",
            "KAGGLE_USERNAME": USER,
            "KAGGLE_KEY": "key",
            "KAGGLEHUB_CACHE": str(tmp_path / "cache"),
            "HOME": str(home),
            "TMPDIR": str(home),
            "http_proxy": f"http://127.0.0.1:{server.server_port}",
            "no_proxy": "",
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        from kaggle import KaggleApi  # which reads these two once, when it is imported

        monkeypatch.setattr(upload, "POLL_SECONDS", 0.01)
        monkeypatch.setattr(tempfile, "tempdir", str(home))  # read once as well
        monkeypatch.setattr(KaggleApi, "args", ["--local"])
        monkeypatch.setattr(KaggleApi, "config_dir", str(home))
        threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
        yield server.kaggle
        server.shutdown()

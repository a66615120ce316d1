"""JupyterLab in a real browser: the notebooks as a person opens them."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from kaggle_tfr.parameters import DEFAULT_NOTEBOOKS

RUN_ALL = """
const done = arguments[arguments.length - 1];
const app = window.jupyterapp;
const panel = Array.from(app.shell.widgets('main')).find(widget => widget.context);
app.shell.activateById(panel.id);
panel.context.ready.then(() => panel.sessionContext.ready)
  .then(() => app.commands.execute('notebook:run-all-cells'))
  .then(() => {
    const cells = Array.from(panel.content.model.cells);
    const code = cells.filter(cell => cell.type === 'code');
    const outputs = code.map(cell => cell.outputs.toJSON());
    done({
      executed: code.every(cell => cell.executionCount !== null),
      errors: outputs.flat()
        .filter(output => output.output_type === 'error')
        .map(output => output.evalue),
      images: outputs.map(ofCell =>
        ofCell.filter(output => output.data && output.data['image/png']).length),
    });
  }).catch(error => done({failed: String(error)}));
"""
IS_OPEN = """
const all = window.jupyterapp && window.jupyterapp.shell.widgets('main');
const panel = all && Array.from(all).find(widget => widget.context);
return !!(panel && panel.content && panel.content.model)
"""


def wait_for(is_ready):
    for _ in range(120):
        with contextlib.suppress(OSError):
            if is_ready():
                return
        time.sleep(1)


@pytest.fixture(scope="module")
def lab(root, tmp_path_factory):
    """The address of JupyterLab over a copy of the checkout."""
    pytest.importorskip("jupyterlab", reason="the extra 'browser' is not installed")
    checkout = tmp_path_factory.mktemp("lab") / "checkout"
    for name in ("notebooks", "kaggle_tfr"):
        shutil.copytree(root / name, checkout / name)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    call = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        f"--port={port}",
    ]
    call += ["--ip=127.0.0.1", "--IdentityProvider.token=", "--expose-app-in-browser"]
    environment = os.environ | {
        "HOME": str(checkout.parent),
        "PYTHONPATH": str(checkout),
        "JUPYTER_CONFIG_DIR": str(checkout.parent),
    }
    environment.pop("MPLBACKEND", None)
    with (checkout.parent / "log.txt").open("w") as log:
        server = subprocess.Popen(
            call, cwd=checkout, env=environment, stdout=log, stderr=log
        )
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: urllib.request.urlopen(f"{address}/api", timeout=5).status)
        yield address
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Headless Chromium, as tall as a notebook, so that every cell is drawn."""
    webdriver = pytest.importorskip(
        "selenium.webdriver", reason="selenium is not installed"
    )
    options, driver = webdriver.ChromeOptions(), shutil.which("chromedriver")
    options.binary_location = shutil.which("chromium") or ""
    if not options.binary_location or not driver:
        pytest.skip("there is no chromium with its chromedriver on this machine")
    flags = [
        "headless",
        "no-sandbox",
        "disable-gpu",
        "disable-quic",
        "no-first-run",
        "disable-background-networking",
        "disable-component-update",
        "disable-sync",
        f"user-data-dir={tmp_path_factory.mktemp('profile')}",
        "window-size=1250,9000",
    ]
    for flag in flags:
        options.add_argument(f"--{flag}")
    window = webdriver.Chrome(options, webdriver.ChromeService(driver))
    window.set_script_timeout(900)
    yield window
    window.quit()


@pytest.mark.heavy
@pytest.mark.timeout(1800)
def test_every_notebook_runs_in_jupyterlab(lab, browser):
    """Each is opened in notebooks/, run completely, and shows its figures once."""
    for name in DEFAULT_NOTEBOOKS:
        browser.get(f"{lab}/lab/workspaces/{name}/tree/notebooks/{name}.ipynb?reset")
        wait_for(lambda: browser.execute_script(IS_OPEN))
        found = browser.execute_async_script(RUN_ALL)
        assert found.get("errors") == [], (name, found)
        assert found["executed"], (name, found)
        assert max(found["images"]) == 1, (name, found)

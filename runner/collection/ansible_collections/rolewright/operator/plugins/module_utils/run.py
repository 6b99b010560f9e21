"""Requests of modules to the operator that has started their run, and to the API server, through the run's API proxy."""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import typing
import urllib.parse

import yaml

#: The variable that names the kubeconfig of the run.
KUBECONFIG = "K8S_AUTH_KUBECONFIG"

#: Seconds that one request may take.
TIMEOUT = 60

#: The path below which the operator itself answers.
ROOT = "/rolewright/v1/run"


class Refused(Exception):
    """A request has failed. code is the HTTP status of the answer, or 0 without an answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Run:
    """The API proxy of the run, with the token of the run."""

    def __init__(self, kubeconfig: str = "") -> None:
        self.server, self.token, self.authority = read_kubeconfig(kubeconfig or os.environ.get(KUBECONFIG, ""))

    def about(self) -> dict:
        """Return what the operator says about the run."""
        return self.ask("GET", ROOT)

    def call(self, name: str, body: dict) -> dict:
        """Send one of the operator's own requests, such as status, and return the answer."""
        return self.ask("POST", ROOT + "/" + name, body)

    def ask(self, method: str, path: str, body: dict | None = None) -> dict:
        """Send a request that only Rolewright knows, and return the answer."""
        try:
            return self.request(method, path, body)
        except Refused as error:
            if is_foreign(error):
                raise Refused(error.code, "this module needs Rolewright, and the run's operator is another one: " + str(error)) from error
            raise

    def request(self, method: str, path: str, body: dict | None = None, content_type: str = "application/json") -> dict:
        """Send a request, and return the answer, an object in JSON. Raise Refused if there is none, or an error."""
        url = urllib.parse.urlsplit(self.server)
        connection: http.client.HTTPConnection
        if url.scheme == "https":
            context = ssl.create_default_context(cadata=self.authority or None)
            connection = http.client.HTTPSConnection(url.hostname or "", url.port, timeout=TIMEOUT, context=context)
        else:
            connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=TIMEOUT)
        headers = {"Accept": "application/json", "Authorization": "Bearer " + self.token}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = content_type
        try:
            connection.request(method, url.path.rstrip("/") + path, body=data, headers=headers)
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise Refused(0, f"the API proxy at {self.server} does not answer: {error}") from error
        finally:
            connection.close()
        answer = decoded(text)
        if response.status >= 300:
            message = answer.get("message") or text[:1000].decode(errors="replace").strip()
            raise Refused(response.status, message or f"the API proxy answers {response.status}")
        return answer


def is_foreign(error: Refused) -> bool:
    """Tell whether the answer is that of an API server, to which another operator has forwarded an unknown request."""
    message = str(error)
    return error.code == 404 and "this operator has" not in message or error.code == 403 and f'path "{ROOT}' in message


def decoded(text: bytes) -> dict:
    """Return the object in a JSON text; an empty object if the text is anything else."""
    try:
        answer = json.loads(text)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def read_kubeconfig(path: str) -> tuple[str, str, str]:
    """Return server, token and certificate authority of the current context in a kubeconfig. Raise Refused on an error."""
    if not path:
        raise Refused(0, f"{KUBECONFIG} is not set: this module works in runs that an operator has started")
    try:
        with open(path, encoding="utf-8") as file:
            config = yaml.safe_load(file)
    except (OSError, yaml.YAMLError) as error:
        raise Refused(0, f"the kubeconfig of the run cannot be read: {error}") from error
    try:
        context = named(config, "contexts", config["current-context"])["context"]
        cluster = named(config, "clusters", context["cluster"])["cluster"]
        user = named(config, "users", context["user"])["user"]
        authority = base64.b64decode(cluster.get("certificate-authority-data") or "").decode()
        return cluster["server"], user.get("token") or "", authority
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Refused(0, f"the kubeconfig {path} is not that of a run: {error!r}") from error


def named(config: dict, key: str, name: str) -> dict:
    """Return the entry with a name in one of the lists of a kubeconfig. Raise KeyError if there is none."""
    for entry in config[key]:
        if entry["name"] == name:
            return entry
    raise KeyError(name)


def answer_or_fail(module: typing.Any, ask: typing.Callable[[Run], dict]) -> dict:
    """Return what ask returns for the run. If it raises Refused, fail the task with the reason."""
    try:
        return ask(Run())
    except Refused as error:
        module.fail_json(msg=str(error), code=error.code)
        raise  # fail_json does not return

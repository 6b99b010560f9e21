"""Tests of those parts of the modules in the binary that need no Ansible and no operator."""

import base64
import os
import sys
import tempfile
import types
import unittest
import unittest.mock

FAKE = {name: types.ModuleType(name) for name in ("ansible", "ansible.module_utils", "ansible.module_utils.basic", "ansible.module_utils.urls")}
FAKE["ansible.module_utils.basic"].AnsibleModule = object
FAKE["ansible.module_utils.urls"].fetch_url = None

with unittest.mock.patch.dict(sys.modules, FAKE):
    from ansible_collections.operator_sdk.util.plugins.modules import k8s_status, osdk_metric
    from ansible_collections.rolewright.operator.plugins.module_utils import run
    from ansible_collections.rolewright.operator.plugins.modules import metric, requeue_after, wait_for

NOW = "2026-01-02T03:04:05Z"


class Kubeconfig(unittest.TestCase):
    def read(self, text: str) -> tuple:
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            return run.read_kubeconfig(file.name)

    def test_of_a_run(self) -> None:
        authority = base64.b64encode(b"PEM").decode()
        text = f"""
current-context: ns/proxy
contexts: [{{name: other, context: {{}}}}, {{name: ns/proxy, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: "https://127.0.0.1:1", certificate-authority-data: {authority}}}}}]
users: [{{name: u, user: {{token: secret}}}}]
"""
        self.assertEqual(self.read(text), ("https://127.0.0.1:1", "secret", "PEM"))

    def test_of_something_else(self) -> None:
        for text in ("", "[]", "a: [", "current-context: x", "{current-context: x, contexts: [{name: x}]}", "{current-context: x, contexts: [], clusters: 1}"):
            with self.assertRaises(run.Refused, msg=text) as caught:
                self.read(text)
            self.assertEqual(caught.exception.code, 0)

    def test_of_no_run(self) -> None:
        with unittest.mock.patch.dict(os.environ, clear=True), self.assertRaisesRegex(run.Refused, "K8S_AUTH_KUBECONFIG is not set"):
            run.Run()


class Foreign(unittest.TestCase):
    def test_who_answers(self) -> None:
        for (code, message), foreign in {
            (404, "the server could not find the requested resource"): True,
            (403, 'forbidden: User "system:serviceaccount:a:b" cannot post path "/rolewright/v1/run/status"'): True,
            (404, "there is no such call: this operator has status below /rolewright/v1/run"): False,
            (403, 'pods "x" is forbidden: User "a" cannot get resource "pods"'): False,
            (410, "the object of this run is gone"): False,
        }.items():
            self.assertEqual(run.is_foreign(run.Refused(code, message)), foreign, message)


class Wait(unittest.TestCase):
    def params(self, **given) -> dict:
        return {"ready": False, "condition": None, "jsonpath": None, "value": None, **given}

    def test_goals(self) -> None:
        for goal, params in {
            "ready": {"ready": True}, "condition=Up=False": {"condition": "Up=False"}, "jsonpath={.a}=b": {"jsonpath": ".a", "value": "b"},
            "jsonpath={.a}": {"jsonpath": "{.a}"}, "jsonpath={.a}=true": {"jsonpath": ".a", "value": True}, "jsonpath={.a}=0": {"jsonpath": ".a", "value": 0},
        }.items():
            self.assertEqual(wait_for.goal(self.params(**params)), goal)

    def wait(self, answers: list, timeout: float) -> tuple:
        """Wait with these answers of the operator. Return the result and the pauses; the clock advances only in pauses."""
        now, pauses = [0.0], []

        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            now[0] += seconds

        client = unittest.mock.Mock()
        client.call.side_effect = answers
        with unittest.mock.patch.object(wait_for.time, "monotonic", lambda: now[0]):
            return wait_for.wait(client, {}, timeout, sleep), pauses

    def test_blocks_until_it_is_met(self) -> None:
        answer, pauses = self.wait([{"met": False}, {"met": False}, {"met": True}], 60)
        self.assertFalse(answer["timedOut"])
        self.assertEqual(pauses, [1, 1.5])

    def test_goes_on_after_a_failure_that_may_pass(self) -> None:
        for code in (0, 429, 500, 503):
            answer, _ = self.wait([run.Refused(code, "the API server restarts"), {"met": True}], 60)
            self.assertTrue(answer["met"])
            with self.assertRaises(run.Refused):
                self.wait([run.Refused(code, "the API server restarts")] * 20, 4)
        with self.assertRaises(run.Refused):
            self.wait([run.Refused(403, "forbidden"), {"met": True}], 60)

    def test_blocks_for_its_time(self) -> None:
        answer, pauses = self.wait([{"met": False, "detail": "it is late"}] * 20, 4)
        self.assertEqual((answer["timedOut"], answer["detail"], sum(pauses)), (True, "it is late", 4))


class Arguments(unittest.TestCase):
    def test_time(self) -> None:
        for text, good in {"24h": True, "1h30m": True, "5s": True, "": False, "5": False, "30m1h": False, "-5s": False, "1h\n": False}.items():
            self.assertEqual(requeue_after.is_time(text), good, text)

    def test_metric(self) -> None:
        params = {"name": "a", "description": "b", "labels": {"n": 1}, "type": "gauge", "value": 0}
        self.assertEqual(metric.request(params), {"name": "a", "description": "b", "labels": {"n": "1"}, "gauge": {"set": 0}})
        self.assertEqual(metric.request({**params, "type": "counter", "value": None})["counter"], {"add": 1})

    def test_osdk_metric(self) -> None:
        params = {"name": "a", "description": "b", "counter": None, "histogram": None, "summary": None, "gauge": {"set": 0, "add": None}}
        self.assertEqual(osdk_metric.request(params), {"name": "a", "description": "b", "gauge": {"set": 0}})


class Status(unittest.TestCase):
    def test_conditions(self) -> None:
        there = [{"type": "A", "status": "True", "reason": "X", "lastTransitionTime": "then"},
                 {"type": "B", "status": "True", "reason": "X", "observedGeneration": 1, "lastTransitionTime": "then"}]
        wished = [{"type": "A", "status": "True", "reason": "X", "message": None}, {"type": "B", "status": "False", "reason": None},
                  {"type": "C", "status": "True"}]
        self.assertEqual(k8s_status.merged_conditions(there, wished, NOW), [
            there[0], {"type": "B", "status": "False", "lastTransitionTime": NOW}, {"type": "C", "status": "True", "lastTransitionTime": NOW}])
        self.assertEqual(there[1]["status"], "True")

    def test_bad_conditions(self) -> None:
        for condition in ({"reason": "not one"}, {"reason": "1st"}, {"lastTransitionTime": "yesterday"}):
            with self.assertRaises(ValueError, msg=condition):
                k8s_status.check_condition(condition)
        k8s_status.check_condition({"reason": "good", "lastHeartbeatTime": NOW, "lastTransitionTime": "2026-01-31T12:00Z"})

    def test_merge(self) -> None:
        there = {"a": {"b": 1, "c": [1, 2]}, "d": 1}
        self.assertEqual(k8s_status.merged(there, {"a": {"c": [2, 3]}, "e": 2}, False), {"a": {"b": 1, "c": [1, 2, 3]}, "d": 1, "e": 2})
        self.assertEqual(k8s_status.merged(there, {"a": {"c": [2, 3]}}, True), {"a": {"b": 1, "c": [2, 3]}, "d": 1})

    def write(self, conflicts: int, **given) -> tuple:
        """Write while another client is faster several times. Return the result, and all writes that were tried."""
        sent = []

        def request(method, path, body=None, content_type=""):
            if method == "GET" and path == "/apis/g/v1":
                return {"resources": [{"name": "as", "kind": "A", "namespaced": True}, {"name": "as/status", "kind": "A"}]}
            if method == "GET":
                return {"metadata": {"resourceVersion": str(len(sent))}, "status": {"a": 1}}
            sent.append((method, path, body, content_type))
            if len(sent) <= conflicts:
                raise run.Refused(409, "the object has been modified")
            return body

        params = {"api_version": "g/v1", "kind": "A", "namespace": "ns", "name": "x", "status": None, "conditions": None, "replace": False,
                  "replace_lists": False, **given}
        client = unittest.mock.Mock()
        client.request = request
        return k8s_status.write(client, params, False), sent

    def test_write(self) -> None:
        result, sent = self.write(2, status={"b": 2})
        self.assertEqual(sent[-1], ("PATCH", "/apis/g/v1/namespaces/ns/as/x/status",
                                    {"metadata": {"resourceVersion": "2"}, "status": {"a": 1, "b": 2}}, "application/merge-patch+json"))
        self.assertTrue(result["changed"])
        self.assertEqual(self.write(0, status={"a": 1}), ({"changed": False, "result": {"metadata": {"resourceVersion": "0"}, "status": {"a": 1}}}, []))
        _, sent = self.write(0, status={"b": 2}, replace=True)
        self.assertEqual((sent[0][0], sent[0][2]["status"]), ("PUT", {"b": 2}))
        with self.assertRaises(run.Refused):
            self.write(100, status={"b": 2})

    def test_path(self) -> None:
        client = unittest.mock.Mock()
        client.request.return_value = {"resources": [
            {"name": "as", "kind": "A", "namespaced": True}, {"name": "as/status", "kind": "A"}, {"name": "bs", "kind": "B"}]}
        self.assertEqual(k8s_status.path_of(client, "g/v1", "A", "ns", "x/y"), "/apis/g/v1/namespaces/ns/as/x%2Fy")
        for version, kind in (("g/v1", "B"), ("g/v1", "C"), ("../v1/x", "A"), ("g/v1/x/y", "A")):
            with self.assertRaises(run.Refused):
                k8s_status.path_of(client, version, kind, "ns", "x")

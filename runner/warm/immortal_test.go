package warm_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// immortalise is a Python program that imports modules, marks objects as immortal, and prints: Python's minor version, how
// many objects were marked with marking turned off and on, by how much ten references raise the reference count of a
// module, how many page faults a forked process that uses all modules has before and after, and whether a generator and the
// garbage collection go on as before.
const immortalise = `
import gc, importlib, os, resource, sys, weakref
sys.path.insert(0, sys.argv[1])
import immortal, switches
for name in ("argparse", "ast", "decimal", "difflib", "email.message", "http.client", "inspect", "logging.config", "optparse", "tarfile", "unittest.mock", "zipfile"):
    importlib.import_module(name)

def numbers():
    yield 1
    yield 2

class Node:
    pass

def cycle():
    node = Node()
    node.self, node.list = node, [node]
    return weakref.ref(node)

def faults():
    read, write = os.pipe()
    if os.fork() == 0:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for module in list(sys.modules.values()):
            for value in list(vars(module).values()):
                for part in list(getattr(value, "__dict__", {}).values()):
                    kept = part
        os.write(write, str(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before).encode())
        os._exit(0)
    os.wait()
    return int(os.read(read, 99))

switches._off.add("immortal")
without = immortal.make()
switches._off.clear()
generator, garbage = numbers(), cycle()
next(generator)
kept, before = [{"a": "x" * n, "b": (n, [n])} for n in range(1000)], faults()
marked = immortal.make()
gc.freeze()
count, more = sys.getrefcount(os), [os] * 10
print(sys.version_info.minor, without, marked, sys.getrefcount(os) - count, before, faults(), next(generator), garbage() is None)
os.environ["X"] = kept[999]["a"]
kept.clear()
del os, generator, Node
gc.collect()
for n in range(100_000):
    kept.append({str(n): [n]})
print("fine")
`

// References to immortal objects are not counted, so that using such an object does not write to it: see immortal.py.
// Python 3.11 and older have no immortal objects, and are left as they are.
func TestImmortal(t *testing.T) {
	t.Parallel()
	directory := must.Get(filepath.Abs("python"))(t)
	out, err := exec.Command(interpreter(t), "-c", immortalise, directory).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var minor, without, marked, counted, before, after, second int
	var freed, end string
	if _, err := fmt.Sscan(string(out), &minor, &without, &marked, &counted, &before, &after, &second, &freed, &end); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("Python 3.%d: %d objects marked; page faults %d before, %d after", minor, marked, before, after)
	if without != 0 {
		t.Errorf("%d objects were marked although that is turned off", without)
	}
	if second != 2 || freed != "True" || end != "fine" {
		t.Errorf("what was in progress does not go on:\n%s", out)
	}
	if minor < 12 {
		if marked != 0 || counted != 10 {
			t.Errorf("an interpreter without such objects was changed:\n%s", out)
		}
		return
	}
	if marked < 10_000 || counted != 0 || after > before/2 {
		t.Errorf("the objects are counted still:\n%s", out)
	}
}

// interpreter returns the Python that the first line of ansible-runner names.
func interpreter(t *testing.T) string {
	t.Helper()
	path := must.Get(exec.LookPath("ansible-runner"))(t)
	file := must.Get(os.Open(path))(t)
	defer file.Close()
	line, err := bufio.NewReader(file).ReadString('\n')
	fields := strings.Fields(strings.TrimPrefix(line, "#!"))
	if err != nil || len(fields) == 0 || !strings.Contains(fields[0], "python") {
		t.Fatalf("%s begins with %q: %v", path, line, err)
	}
	return fields[0]
}

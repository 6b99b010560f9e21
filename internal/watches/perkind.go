package watches

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxVerbosity is the highest verbosity that ansible-playbook knows: -vvvvvvv.
const maxVerbosity = 7

// MostReconciles limits how many objects of a kind may run at a time: each has a worker of its own, even if it does not run.
const MostReconciles = 10_000

// variableFor names the environment variable that sets something for a kind.
// The core group leaves an underscore at the end.
func variableFor(prefix string, kind schema.GroupVersionKind) string {
	return strings.ToUpper(prefix + "_" + strings.ReplaceAll(kind.Kind+"_"+kind.Group, ".", "_"))
}

// perKind applies the settings from the environment for a kind.
func (c *decoding) perKind(e *entry) {
	a := e.value("kind")
	name := variableFor("MAX_CONCURRENT_RECONCILES", e.watch.GVK)
	if _, set := c.opts.LookupEnv(name); !set {
		old := variableFor("WORKER", e.watch.GVK)
		if _, set := c.opts.LookupEnv(old); set {
			c.warn(a, fmt.Sprintf("Environment variable %s is deprecated, use %s instead", old, name), "rename the variable")
			name = old
		}
	}
	e.watch.MaxConcurrentReconciles = min(c.opts.Defaults.MaxConcurrentReconciles, MostReconciles)
	c.setting(a, name, &e.watch.MaxConcurrentReconciles, 1, math.MaxInt, "is not positive", "set it to 1 or more")
	if n := &e.watch.MaxConcurrentReconciles; *n > MostReconciles {
		c.warn(a, fmt.Sprintf("environment variable %s=%d is above %d; using %d", name, *n, MostReconciles, MostReconciles), fmt.Sprintf("set it to %d or less", MostReconciles))
		*n = MostReconciles
	}
	e.watch.AnsibleVerbosity = c.opts.Defaults.AnsibleVerbosity
	name = variableFor("ANSIBLE_VERBOSITY", e.watch.GVK)
	c.setting(a, name, &e.watch.AnsibleVerbosity, 0, maxVerbosity, "is out of range", "set it to 0 … 7")
}

// setting reads a variable that holds an integer between two bounds. If it is not
// set, or wrong, *into stays unchanged.
func (c *decoding) setting(a at, name string, into *int, least, most int, wrong, hint string) {
	value, set := c.opts.LookupEnv(name)
	if !set {
		return
	}
	n, err := strconv.Atoi(value)
	switch {
	case err != nil:
		c.warn(a, fmt.Sprintf("Could not parse environment variable as an integer; using default value: %s=%q", name, excerpt(value)),
			"set it to a whole number")
	case n < least || n > most:
		c.warn(a, fmt.Sprintf("environment variable %s=%d %s; using default value %d", name, n, wrong, *into), hint)
	default:
		*into = n
	}
}

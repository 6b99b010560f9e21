package watches

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxVerbosity is the highest verbosity that ansible-playbook knows: -vvvvvvv.
const maxVerbosity = 7

// variableFor names the environment variable that sets something for a kind.
// The core group leaves an underscore at the end.
func variableFor(prefix string, kind schema.GroupVersionKind) string {
	return strings.ToUpper(prefix + "_" + strings.ReplaceAll(kind.Kind+"_"+kind.Group, ".", "_"))
}

// perKind applies the settings that the environment has for a kind.
func (c *decoding) perKind(e *entry, keys map[string]at) {
	a := orAt(keys, "kind", e.at)
	e.watch.MaxConcurrentReconciles = c.opts.Defaults.MaxConcurrentReconciles
	e.watch.AnsibleVerbosity = c.opts.Defaults.AnsibleVerbosity

	name := variableFor("MAX_CONCURRENT_RECONCILES", e.watch.GVK)
	if _, set := c.opts.LookupEnv(name); !set {
		if old := variableFor("WORKER", e.watch.GVK); c.isSet(old) {
			c.warn(a, fmt.Sprintf("Environment variable %s is deprecated, use %s instead", old, name), "rename the variable")
			name = old
		}
	}
	if n, ok := c.integer(a, name); ok {
		if n > 0 {
			e.watch.MaxConcurrentReconciles = n
		} else {
			c.warn(a, fmt.Sprintf("environment variable %s=%d is not positive; using default value %d",
				name, n, c.opts.Defaults.MaxConcurrentReconciles), "set it to 1 or more")
		}
	}
	name = variableFor("ANSIBLE_VERBOSITY", e.watch.GVK)
	if n, ok := c.integer(a, name); ok {
		if n >= 0 && n <= maxVerbosity {
			e.watch.AnsibleVerbosity = n
		} else {
			c.warn(a, fmt.Sprintf("environment variable %s=%d is out of range; using default value %d",
				name, n, c.opts.Defaults.AnsibleVerbosity), "set it to 0 … 7")
		}
	}
}

func (c *decoding) isSet(name string) bool {
	_, set := c.opts.LookupEnv(name)
	return set
}

// integer reads a variable; false if it is not set or no integer.
func (c *decoding) integer(a at, name string) (int, bool) {
	value, set := c.opts.LookupEnv(name)
	if !set {
		return 0, false
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		c.warn(a, fmt.Sprintf("Could not parse environment variable as an integer; using default value: %s=%q", name, excerpt(value)),
			"set it to a whole number")
		return 0, false
	}
	return n, true
}

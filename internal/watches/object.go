package watches

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/rolewright/rolewright/internal/text"
)

// object reads a mapping into a T, key by key as fields say. It returns where
// the value of each known key is; nil if there is no mapping. A key whose value
// is null counts as missing.
//
// Keys match in any case. Of keys that differ only in case, the one that sorts
// last counts, as with encoding/json behind a sorted map.
func object[T any](c *decoding, a at, fields []field[T], into *T) map[string]at {
	if a.node.Kind != yaml.MappingNode {
		c.mismatch(a, typeMap)
		return nil
	}
	known := map[string]pair{}
	for _, p := range pairs(a) {
		i := slices.IndexFunc(fields, func(f field[T]) bool { return strings.EqualFold(f.Key, p.key) })
		if i < 0 {
			c.unknownKey(p, describe("", fields))
			continue
		}
		key := fields[i].Key
		if other, twice := known[key]; twice {
			winner := max(other.key, p.key)
			c.warn(p.name, fmt.Sprintf("keys %q and %q are the same key; %q is used", other.key, p.key, winner), "remove one of the two")
			if winner != p.key {
				continue
			}
		}
		known[key] = p
	}
	given := map[string]at{}
	// In the order of the table, so that problems at one place have a fixed order.
	for _, f := range fields {
		if p, ok := known[f.Key]; ok && !isNull(p.value.node) {
			f.set(c, into, p.value)
			given[f.Key] = p.value
		}
	}
	return given
}

// unknownKey warns of a key without effect and names the one that was meant.
func (c *decoding) unknownKey(p pair, fields []Field) {
	keys := make([]string, 0, len(fields))
	for _, f := range fields {
		keys = append(keys, f.Key)
	}
	hint := "remove it; known keys: " + strings.Join(keys, ", ")
	if key := text.Nearest(p.key, keys); key != "" {
		hint = fmt.Sprintf("did you mean %q?", key)
	}
	if foreign := foreignKey(p.key); foreign != "" {
		hint = foreign
	}
	if slices.Contains(keys, "matchLabels") && p.value.node.Kind == yaml.ScalarNode && text.Nearest(p.key, keys) == "" {
		hint = fmt.Sprintf("write \"matchLabels: {%s: %s}\"; the key is ignored otherwise, and objects without that label run too", excerpt(p.key), excerpt(p.value.node.Value))
	}
	c.warn(p.name, fmt.Sprintf("unknown key %q has no effect", excerpt(p.key)), hint)
}

// mismatch reports a value of the wrong type.
func (c *decoding) mismatch(a at, want string) {
	hint := map[string]string{
		typeString:   "write a single word or a text in quotes",
		typeBool:     "write true or false",
		typeInt:      "write a whole number, such as 20",
		typeNumber:   "write a number, such as 1.5",
		typeDuration: `write a number with a unit in quotes, such as "30s" or "10m"`,
		typeMap:      `write "key: value" lines, indented below the key`,
		typeList:     `write a list: "- " before each element`,
	}[want]
	article := "a"
	if want == typeInt {
		article = "an"
	}
	c.error(a, fmt.Sprintf("%s is not %s %s", describeNode(a.node), article, want), hint)
}

// number returns the value of a numeric scalar.
func number(n *yaml.Node) (float64, bool) {
	if n.Kind != yaml.ScalarNode {
		return 0, false
	}
	switch v, _ := resolve(n); v := v.(type) {
	case int64:
		return float64(v), true
	case uint64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// string reads a string; it accepts numbers and booleans as text.
func (c *decoding) string(a at) (string, bool) {
	if a.node.Kind != yaml.ScalarNode {
		c.mismatch(a, typeString)
		return "", false
	}
	v, err := resolve(a.node)
	if err != nil {
		c.error(a, err.Error(), "write the text in quotes")
		return "", false
	}
	s := scalarText(v)
	if _, isText := v.(string); !isText && s != a.node.Value && v != nil {
		c.warn(a, fmt.Sprintf("%s is read as %q", a.node.Value, s), fmt.Sprintf("write %q to keep it as it is", a.node.Value))
	}
	return s, true
}

func textField[T any](of func(*T) *string) func(*decoding, *T, at) {
	return func(c *decoding, into *T, a at) {
		if s, ok := c.string(a); ok {
			*of(into) = s
		}
	}
}

func boolean[T any](of func(*T) *bool) func(*decoding, *T, at) {
	return func(c *decoding, into *T, a at) {
		if a.node.Kind == yaml.ScalarNode {
			if v, _ := resolve(a.node); v == true || v == false {
				*of(into) = v.(bool)
				return
			}
		}
		c.mismatch(a, typeBool)
	}
}

func variables[T any](of func(*T) *map[string]any) func(*decoding, *T, at) {
	return func(c *decoding, into *T, a at) {
		if a.node.Kind != yaml.MappingNode {
			c.mismatch(a, typeMap)
			return
		}
		if v, ok := c.value(a); ok {
			*of(into) = v.(map[string]any)
		}
	}
}

// integer reads a whole number. It reports any other value and returns false.
func integer(c *decoding, a at) (int, bool) {
	f, ok := number(a.node)
	if !ok || f != math.Trunc(f) || math.Abs(f) >= 1<<53 {
		c.mismatch(a, typeInt)
		return 0, false
	}
	return int(f), true
}

func setMaxFailedRunnerArtifacts(c *decoding, e *entry, a at) {
	if n, ok := integer(c, a); ok {
		e.watch.MaxFailedRunnerArtifacts = n
	}
}

func setArtifactsMaxAge(c *decoding, e *entry, a at) {
	if d, ok := duration(c, a); ok {
		e.watch.ArtifactsMaxAge = &d
	}
}

func setMaxRunnerArtifacts(c *decoding, e *entry, a at) {
	n, ok := integer(c, a)
	if !ok {
		return
	}
	e.watch.MaxRunnerArtifacts = n
	if n == 0 {
		c.remark(a, "0 keeps no artifacts; ansible-operator treated it as unset and kept 20",
			"remove the key to keep 20, write a negative number to keep all")
	}
}

// duration reads a duration of at least 0. It reports any other value and returns
// false.
func duration(c *decoding, a at) (time.Duration, bool) {
	if f, ok := number(a.node); ok {
		if f != 0 {
			c.error(a, a.node.Value+" has no unit", fmt.Sprintf("write %q for seconds", a.node.Value+"s"))
		}
		return 0, f == 0
	}
	v, err := resolve(a.node)
	s, isText := v.(string)
	if a.node.Kind != yaml.ScalarNode || err != nil || !isText {
		c.mismatch(a, typeDuration)
		return 0, false
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		hint := `write a number with a unit, such as "30s", "10m" or "1h30m"`
		if _, unitless := time.ParseDuration(s + "s"); unitless == nil && strings.Trim(s, "0123456789") == "" {
			hint = fmt.Sprintf("write %q for seconds", s+"s")
		}
		c.error(a, err.Error(), hint)
		return 0, false
	}
	return d, true
}

func setReconcilePeriod(c *decoding, e *entry, a at) {
	d, ok := duration(c, a)
	switch {
	case !ok:
		return
	case d < 0: // as ansible-operator has it
		c.warn(a, fmt.Sprintf("the period %s is negative, which switches periodic reconciliation off", d), `write "0s"`)
		d = 0
	case d == 0:
		c.remark(a, "0 switches periodic reconciliation off; ansible-operator treated it as unset",
			"remove the key to use the period of the flag --reconcile-period")
	case d < minPeriod:
		c.warn(a, fmt.Sprintf("the period %s is below the minimum; %s is used", d, minPeriod), `write "1s" or more`)
		d = minPeriod
	}
	e.watch.ReconcilePeriod = &d
}

// limit reads a time limit; 0 means none.
func limit[T any](where func(*T) *time.Duration) func(*decoding, *T, at) {
	return func(c *decoding, into *T, a at) {
		d, ok := duration(c, a)
		switch {
		case !ok:
		case d < 0:
			c.error(a, fmt.Sprintf("the limit %s is negative", d), `write "0s" for no limit`)
		default:
			*where(into) = d
		}
	}
}

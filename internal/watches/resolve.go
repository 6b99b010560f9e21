package watches

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	yaml11 "go.yaml.in/yaml/v2"
	"gopkg.in/yaml.v3"
)

// resolve returns the value of a scalar: nil, bool, int64, uint64, float64 or
// string. Timestamps stay the text that was written.
//
// yaml.v3, which made the nodes, follows YAML 1.2 in part. So the scalar is read
// again by the parser behind sigs.k8s.io/yaml, which ansible-operator uses: yes,
// 0x1F and 1_000 mean here what they mean there.
func resolve(n *yaml.Node) (any, error) {
	const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	if n.Style&yaml.TaggedStyle != 0 {
		return resolveTagged(n)
	}
	if n.Style&quoted != 0 || strings.Contains(n.Value, "\n") {
		return n.Value, nil
	}
	var list []any
	if err := yaml11.Unmarshal([]byte("- "+n.Value), &list); err != nil || len(list) != 1 {
		return n.Value, nil //nolint:nilerr // what is no scalar on a line of its own is a text
	}
	return scalarOr(n.Value, list[0]), nil
}

// resolveTagged returns the value of a scalar with a tag. If the tag is not one of
// YAML's own, such as !vault and !unsafe, the value is the text.
func resolveTagged(n *yaml.Node) (any, error) {
	text, err := yaml.Marshal(&yaml.Node{Kind: yaml.ScalarNode, Tag: n.Tag, Style: n.Style, Value: n.Value})
	if err != nil {
		return nil, err
	}
	var v any
	if err := yaml11.Unmarshal(text, &v); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	return scalarOr(n.Value, v), nil
}

// scalarOr returns a decoded scalar in one of the types of [resolve], or the text if
// the value is not a scalar.
func scalarOr(text string, v any) any {
	switch v := v.(type) {
	case int:
		return int64(v)
	case string:
		// JSON, in which the variables are passed, has no bytes: each byte that is
		// not UTF-8 becomes a replacement character.
		return string([]rune(v))
	case nil, bool, int64, uint64, float64:
		return v
	}
	return text
}

// scalarText returns the text of a number or boolean where a string is expected, or
// where it is a map's key; null becomes the empty string.
func scalarText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case float64:
		// 32 bits are sigs.k8s.io/yaml's choice: 3.14159265358979 becomes "3.1415927".
		return strconv.FormatFloat(v, 'g', -1, 32)
	}
	return fmt.Sprint(v)
}

package watches

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// resolve gives the value of a scalar by the rules of YAML 1.1 as
// sigs.k8s.io/yaml applies them (yaml.v3, whose nodes these are, has moved on
// to YAML 1.2 in part): nil, bool, int64, uint64, float64 or string.
// Timestamps stay the text that was written.
func resolve(n *yaml.Node) (any, error) {
	const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	if n.Style&yaml.TaggedStyle == 0 {
		if n.Style&quoted != 0 {
			return n.Value, nil
		}
		_, v := resolvePlain(n.Value, true)
		return v, nil
	}
	switch n.Tag {
	case "!!binary":
		data, err := base64.StdEncoding.DecodeString(n.Value)
		if err != nil {
			return nil, errors.New("!!binary value contains invalid base64 data")
		}
		// JSON, which carries the variables, has no bytes: what is not UTF-8
		// becomes the replacement character, one for each byte.
		return string([]rune(string(data))), nil
	case "!!bool", "!!int", "!!float", "!!null", "!!timestamp":
		tag, v := resolvePlain(n.Value, n.Tag == "!!timestamp")
		if i, ok := v.(int64); ok && n.Tag == "!!float" {
			return float64(i), nil
		}
		if tag != n.Tag {
			return nil, fmt.Errorf("cannot decode %s `%s` as a %s", tag, n.Value, n.Tag)
		}
		return v, nil
	}
	return n.Value, nil // !!str, and tags of others such as !vault and !unsafe
}

// yaml11Float is what counts as a float, so that neither "1e" nor the
// hexadecimal floats of Go do.
var yaml11Float = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)

// resolvePlain gives tag and value of an unquoted scalar.
func resolvePlain(s string, timestamps bool) (string, any) {
	switch s {
	case "", "~", "null", "Null", "NULL":
		return "!!null", nil
	case "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON":
		return "!!bool", true
	case "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF":
		return "!!bool", false
	case ".nan", ".NaN", ".NAN":
		return "!!float", math.NaN()
	case ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF":
		return "!!float", math.Inf(+1)
	case "-.inf", "-.Inf", "-.INF":
		return "!!float", math.Inf(-1)
	}
	switch c := s[0]; {
	case c == '.':
		if f, err := strconv.ParseFloat(s, 64); err == nil {
			return "!!float", f
		}
	case c == '+', c == '-', '0' <= c && c <= '9':
		if timestamps && isTimestamp(s) {
			return "!!timestamp", s
		}
		return resolveNumber(s)
	}
	return "!!str", s
}

// resolveNumber reads decimal, octal (017, 0o17), hexadecimal and binary
// integers and decimal floats, all with underscores anywhere.
func resolveNumber(s string) (string, any) {
	plain := strings.ReplaceAll(s, "_", "")
	if i, err := strconv.ParseInt(plain, 0, 64); err == nil {
		return "!!int", i
	}
	if u, err := strconv.ParseUint(plain, 0, 64); err == nil {
		return "!!int", u
	}
	if yaml11Float.MatchString(plain) {
		if f, err := strconv.ParseFloat(plain, 64); err == nil {
			return "!!float", f
		}
	}
	// A sign after the prefix is a slip of the library's that Go's numbers do
	// not have.
	if digits, binary := strings.CutPrefix(plain, "0b"); binary {
		if i, err := strconv.ParseInt(digits, 2, 64); err == nil {
			return "!!int", i
		}
	}
	return "!!str", s
}

// isTimestamp recognises the forms of YAML's timestamps that go-yaml does.
func isTimestamp(s string) bool {
	if len(s) < 5 || s[4] != '-' || strings.Trim(s[:4], "0123456789") != "" {
		return false
	}
	for _, layout := range []string{
		"2006-1-2T15:4:5.999999999Z07:00",
		"2006-1-2t15:4:5.999999999Z07:00",
		"2006-1-2 15:4:5.999999999",
		"2006-1-2",
	} {
		if _, err := time.Parse(layout, s); err == nil {
			return true
		}
	}
	return false
}

// scalarText is the text of a number or boolean where a string is expected, or
// where it is a map's key.
func scalarText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case uint64:
		return strconv.FormatUint(v, 10), true
	case float64:
		// 32 bits are sigs.k8s.io/yaml's choice: 3.14159265358979 is "3.1415927".
		return strconv.FormatFloat(v, 'g', -1, 32), true
	}
	return "", false
}

package watches

import "strings"

// replacement is a part of the file that environment expansion changed.
type replacement struct {
	// rawFrom and rawTo enclose the reference in the file.
	rawFrom, rawTo int
	// from and to enclose the replacement in the expanded text.
	from, to int
	// name is the variable's name; empty if a malformed reference was removed.
	name string
	// defined reports whether the variable is set.
	defined bool
}

// expand replaces references to environment variables as os.Expand does, and
// returns where. A reference to a variable that is not set becomes ${NAME},
// whichever way it was written. It stops at limit bytes and then returns false.
//
// It does not use os.Expand, which passes the name to its callback but not the
// place: without the place no problem could be located in the file.
func expand(raw string, lookup func(string) (string, bool), limit int) (text string, made []replacement, ok bool) {
	var b strings.Builder
	copied := 0
	for i := 0; i+1 < len(raw); i++ {
		if raw[i] != '$' {
			continue
		}
		name, width := reference(raw[i+1:])
		if name == "" && width == 0 {
			continue // a dollar sign before anything else is just that
		}
		b.WriteString(raw[copied:i])
		copied = i + 1 + width

		r := replacement{rawFrom: i, rawTo: copied, from: b.Len(), name: name}
		if name != "" {
			value, defined := lookup(name)
			if !defined {
				value = "${" + name + "}"
			}
			r.defined = defined
			b.WriteString(value)
		}
		r.to = b.Len()
		made = append(made, r)
		if b.Len() > limit {
			return "", nil, false
		}
		i = copied - 1
	}
	b.WriteString(raw[copied:])
	return b.String(), made, b.Len() <= limit
}

// reference reads what follows a dollar sign: the variable's name and how many
// bytes it takes. An empty name with a width is a malformed reference.
func reference(s string) (name string, width int) {
	const special = "*#$@!?-0123456789"
	switch {
	case s[0] == '{':
		if len(s) > 2 && strings.IndexByte(special, s[1]) >= 0 && s[2] == '}' {
			return s[1:2], 3
		}
		end := strings.IndexByte(s, '}')
		switch end {
		case -1:
			return "", 1 // an unclosed brace: only "${" goes
		case 1:
			return "", 2
		}
		return s[1:end], end + 1
	case strings.IndexByte(special, s[0]) >= 0:
		return s[:1], 1
	}
	n := 0
	for n < len(s) && isNameByte(s[n]) {
		n++
	}
	return s[:n], n
}

func isNameByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

package extravars

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/rolewright/rolewright/internal/text"
)

// NoticeKind says what happened to a part of an object.
type NoticeKind string

const (
	// ReservedVariable: a key of the spec is a name that Ansible reserves and
	// did not become a variable.
	ReservedVariable NoticeKind = "ReservedVariable"
	// ExpressionName: a key of the spec could be evaluated as the name of a
	// variable, and did not become one.
	ExpressionName NoticeKind = "ExpressionName"
	// KeyCollision: two keys have the same name after conversion. A key that
	// needed no conversion wins, else the lexicographically first one.
	KeyCollision NoticeKind = "KeyCollision"
	// EmptyKey: a key of the spec is empty, or nothing is left of it after
	// conversion; it was dropped.
	EmptyKey NoticeKind = "EmptyKey"
	// SpecNotMap: the object has no spec, or one that is not a map, and so the spec
	// gives no variables.
	SpecNotMap NoticeKind = "SpecNotMap"
	// SourceKey: a key of another object did not become a variable.
	SourceKey NoticeKind = "SourceKey"
	// MarkerEncoded: the object has a map that looks like one of Ansible's markers,
	// or a key with a brace. Everything is encoded so that it arrives as plain data.
	MarkerEncoded NoticeKind = "MarkerEncoded"
	// ControlCharacters: control characters in the object were replaced.
	ControlCharacters NoticeKind = "ControlCharacters"
	// NoticesOmitted: there were more notices than are kept.
	NoticesOmitted NoticeKind = "NoticesOmitted"
)

// Notice tells about a part of an object that did not become variables unchanged.
// Its text is valid UTF-8 without control characters, and of limited length.
type Notice struct {
	Kind NoticeKind
	// Detail says in words what happened, where and why.
	Detail string
}

// maxNotices limits how much one object can make the operator log: a spec can have
// a hundred thousand keys, each with a notice.
const maxNotices = 20

// maxText limits each text from the object in a notice, in bytes.
const maxText = 200

type noticeList struct {
	kept    []Notice
	omitted int
	// controls is set once there is a notice about control characters; one is enough.
	controls bool
}

// add adds a notice. args are texts from the object for the verbs in format.
func (l *noticeList) add(kind NoticeKind, format string, args ...string) {
	if len(l.kept) == maxNotices {
		l.omitted++
		return
	}
	texts := make([]any, len(args))
	for i, arg := range args {
		texts[i] = bounded(arg)
	}
	l.kept = append(l.kept, Notice{Kind: kind, Detail: fmt.Sprintf(format, texts...)})
}

func (l *noticeList) list() []Notice {
	if l.omitted == 0 {
		return l.kept
	}
	return append(l.kept, Notice{Kind: NoticesOmitted, Detail: fmt.Sprintf("%d more notices were left out", l.omitted)})
}

// bounded makes a text from the object fit for a log line or a condition.
func bounded(s string) string {
	s = strings.Map(func(r rune) rune {
		if isControl(r) || r == '\n' || r == '\r' || r == '\t' {
			return utf8.RuneError
		}
		return r
	}, s[:min(len(s), maxText+utf8.UTFMax)])
	return text.Clip(s, maxText)
}

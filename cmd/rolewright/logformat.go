package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	uberzap "go.uber.org/zap"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// logFormat is the value of --log-format. If it is empty, the log looks like
// ansible-operator's.
type logFormat string

const (
	logConsole logFormat = "console"
	logJSON    logFormat = "json"
	logLogfmt  logFormat = "logfmt"
)

func (f *logFormat) String() string { return string(*f) }

// Type implements [pflag.Value].
func (f *logFormat) Type() string { return "format" }

// Set implements [pflag.Value].
func (f *logFormat) Set(text string) error {
	switch is := logFormat(text); is {
	case logConsole, logJSON, logLogfmt:
		*f = is
		return nil
	}
	return fmt.Errorf("%q is not a format of the log: write console, json or logfmt", text)
}

// logOptions are the flags of all commands that log.
type logOptions struct {
	zap       zap.Options
	logFormat logFormat
}

func (o *logOptions) bindLog(fs *pflag.FlagSet) {
	bindZapFlags(&o.zap, fs)
	fs.Var(&o.logFormat, "log-format", "The format of the log, with one line for each task that has ended and the same keys in all formats: console, json or logfmt. Without it, the log has the format of ansible-operator, as set by --zap-encoder.")
}

// bindErrorLog is bindLog for commands that show runs themselves.
func (o *logOptions) bindErrorLog(fs *pflag.FlagSet) {
	o.bindLog(fs)
	fs.Lookup("log-format").Usage = "The format of the log on the standard error: console, json or logfmt. It has errors only, unless --zap-log-level says otherwise. What is printed on the standard output stays as it is."
}

// completeLog makes the log use its format. It is an error if --zap-encoder, in fs, asks for another one.
func (o *logOptions) completeLog(fs *pflag.FlagSet) error {
	f := o.logFormat
	if f == "" {
		return nil
	}
	if encoder := fs.Lookup("zap-encoder"); encoder != nil && encoder.Changed && !strings.EqualFold(encoder.Value.String(), f.String()) {
		return fmt.Errorf("--log-format=%s and --zap-encoder=%s contradict each other: leave one of them out", f, encoder.Value)
	}
	o.zap.NewEncoder = func(options ...zap.EncoderConfigOption) zapcore.Encoder {
		config := uberzap.NewProductionEncoderConfig()
		if f == logConsole {
			config = uberzap.NewDevelopmentEncoderConfig()
		}
		for _, option := range options {
			option(&config)
		}
		switch f {
		case logConsole:
			return zapcore.NewConsoleEncoder(config)
		case logLogfmt:
			return logfmtEncoder{zapcore.NewJSONEncoder(config)}
		}
		return zapcore.NewJSONEncoder(config)
	}
	return nil
}

// logger returns the program's logger, as [newLogger] makes it.
func (o *logOptions) logger(w io.Writer) logr.Logger {
	if o.logFormat == "" {
		return newLogger(o.zap, w)
	}
	return newLogger(o.zap, w, uberzap.WrapCore(func(core zapcore.Core) zapcore.Core { return sameKeys{core} }))
}

// sameKeys is a core that names the run and the kind by one key each: ansible-operator's log,
// whose keys are kept without --log-format, uses several. It drops no line because there are
// many of its kind, as zap does above 100 a second: there can be that many tasks.
type sameKeys struct{ zapcore.Core }

func (c sameKeys) With(fields []zapcore.Field) zapcore.Core {
	return sameKeys{c.Core.With(withSameKeys(fields))}
}

func (c sameKeys) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

func (c sameKeys) Write(e zapcore.Entry, fields []zapcore.Field) error {
	return c.Core.Write(e, withSameKeys(fields)) // the core's own error
}

func withSameKeys(fields []zapcore.Field) []zapcore.Field {
	named := make([]zapcore.Field, 0, len(fields)+1)
	for _, f := range fields {
		switch f.Key {
		case "job":
			f.Key = "run"
		case "gvk", "GVK":
			if version, kind, ok := strings.Cut(f.String, ", Kind="); ok {
				group, _, grouped := strings.Cut(version, "/")
				if !grouped {
					group = ""
				}
				named = append(named, uberzap.String("group", group))
				f = uberzap.String("kind", kind)
			}
		}
		named = append(named, f)
	}
	return named
}

// logfmtEncoder writes the JSON object of a line as logfmt, with the same keys and values in the same order.
type logfmtEncoder struct{ zapcore.Encoder }

func (e logfmtEncoder) Clone() zapcore.Encoder { return logfmtEncoder{e.Encoder.Clone()} }

func (e logfmtEncoder) EncodeEntry(entry zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	object, err := e.Encoder.EncodeEntry(entry, fields)
	if err != nil {
		return nil, err // the encoder's own error
	}
	decoder := json.NewDecoder(bytes.NewReader(bytes.Clone(object.Bytes())))
	object.Reset()
	if _, err := decoder.Token(); err != nil { // the opening brace
		return nil, fmt.Errorf("line of the log: %w", err)
	}
	for decoder.More() {
		key, err := decoder.Token()
		var value json.RawMessage
		if err == nil {
			err = decoder.Decode(&value)
		}
		if err != nil {
			return nil, fmt.Errorf("line of the log: %w", err)
		}
		if object.Len() > 0 {
			object.AppendByte(' ')
		}
		object.AppendString(strings.Map(inKey, fmt.Sprint(key)) + "=" + logfmtValue(value))
	}
	object.AppendByte('\n')
	return object, nil
}

// inKey replaces a character that would end a key.
func inKey(r rune) rune {
	if endsWord(r) {
		return '_'
	}
	return r
}

func endsWord(r rune) bool {
	return r == '=' || r == '"' || r == ' ' || r == utf8.RuneError || !unicode.IsPrint(r)
}

// logfmtValue returns the text of a JSON string, or other JSON unchanged; in quotes unless it is one word.
func logfmtValue(value json.RawMessage) string {
	var said string
	if json.Unmarshal(value, &said) != nil {
		said = string(value)
	}
	if said == "" || strings.ContainsFunc(said, endsWord) {
		return strconv.Quote(said)
	}
	return said
}

// Package remote makes a run in another container than the operator's: the process there has
// the run made by a [runner.Runner], and sends its artifacts to the operator, which puts them
// where those of its own runs are. It knows two processes, HTTP and TLS, and nothing of what
// starts the container.
//
// The artifacts are the data path: the container keeps all of them, and sends what the operator
// does not have, so that an operator that starts again, with or without its disk, gets the
// rest or the whole. What the operator has, it says in each answer.
package remote

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/report"
)

// ServerName is the name in the operator's certificate, whatever its address is.
const ServerName = "rolewright-runs"

// Root is below which the operator answers processes of this package.
const Root = "/rolewright/v1/job/"

const (
	startPath = Root + "start"
	filesPath = Root + "files"
	// herePath is asked first on each connection: whether this operator has the run.
	herePath = Root + "here"
	// elsewhereHeader is in the answer of an operator where another one has the run.
	elsewhereHeader = "Rolewright-Elsewhere"
	// notHereHeader is in each answer of an operator that does not have the run, but another one has it, or this one will.
	notHereHeader = "Rolewright-Not-Here"
	// podParameter names the Pod that asks: one Pod makes a run.
	podParameter = "pod"
	// epochParameter is the epoch that the container knows of: it sends nothing to another one.
	epochParameter = "epoch"
)

// Input is what the process in the container is given, by a file.
type Input struct {
	Request request
	// URL is that of the operator, CA is what has signed its certificate.
	URL string
	CA  []byte
	// Token is the run's.
	Token string
	// Server and ServerCA are those in the run's kubeconfig, which gets others.
	Server   string
	ServerCA []byte
}

// request is what of a [runner.Request] is for the container.
type request struct {
	ID, Dir, Playbook, Role, Cmdline, Inventory string
	Command                                     *runner.Command
	ExtraVars                                   []byte
	Env                                         map[string]string
	Files                                       map[string][]byte
	Verbosity                                   int
	SkipFacts                                   bool
	MaxBytes                                    int64
	Timeout                                     time.Duration
}

// inputLimit is more than a Secret can have, unpacked.
const inputLimit = 64 << 20

// Encode is the input of a run in its file, for an operator at a URL.
func Encode(req runner.Request, url string, ca []byte) ([]byte, error) {
	in := Input{
		Request: request{
			ID: req.ID, Dir: req.Dir, Playbook: req.Content.Playbook, Role: req.Content.Role, Command: req.Content.Command, Cmdline: req.Cmdline, Inventory: req.Inventory,
			ExtraVars: req.ExtraVars, Env: req.Env, Files: req.Files, Verbosity: req.Verbosity, SkipFacts: req.SkipFacts, MaxBytes: req.MaxBytes,
			Timeout: req.JobRun.Timeout,
		},
		URL: url, CA: ca, Token: req.JobRun.Token, Server: req.JobRun.Server, ServerCA: req.JobRun.CA,
	}
	var b bytes.Buffer
	packed := gzip.NewWriter(&b)
	if err := json.NewEncoder(packed).Encode(in); err != nil {
		return nil, fmt.Errorf("encode the input of a run: %w", err)
	}
	if err := packed.Close(); err != nil {
		return nil, fmt.Errorf("encode the input of a run: %w", err)
	}
	return b.Bytes(), nil
}

// Decode reads what Encode has written.
func Decode(data []byte) (in Input, err error) {
	packed, err := gzip.NewReader(bytes.NewReader(data))
	if err == nil {
		err = json.NewDecoder(io.LimitReader(packed, inputLimit)).Decode(&in)
	}
	if err != nil {
		return in, fmt.Errorf("read the input of the run: %w", err)
	}
	return in, nil
}

// holding is what the operator answers: what it has of the run.
type holding struct {
	// Epoch changes when the operator has forgotten what it was told.
	Epoch string `json:"epoch"`
	// Have is the counter up to which it has all events.
	Have int `json:"have"`
	// Reports is how many bytes it has of what a command has reported.
	Reports int64 `json:"reports"`
}

// Pieces of what a command reports are called after the offset at which they begin.
const reportsDir = "reports/"

var reportsName = regexp.MustCompile(`^` + reportsDir + `(0|[1-9][0-9]{0,8})$`)

// reportsLimit is enough for the operator to see that a command has reported too much.
const reportsLimit = report.MaxBytes + 1

// eventName is what files of events are called; the first part is the counter.
var eventName = regexp.MustCompile(`^([1-9][0-9]{0,9})-[0-9A-Za-z-]{1,64}\.json$`)

// eventsDir is where they are on the wire, below the directory of the artifacts.
const eventsDir = "job_events/"

// lastFiles are those that are sent at the end beside events, in order; those of the artifacts,
// and in the private data directory.
func lastFiles() (artifacts, private []string) {
	return []string{"stdout", "stderr", "rc", "status"}, []string{"runner.log"}
}

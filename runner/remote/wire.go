// Package remote makes a run in a container other than the operator's. A process there makes the
// run with a [runner.Runner], and sends the artifacts to the operator, which puts them where the
// artifacts of its own runs are. The package knows these two processes, HTTP and TLS, and nothing
// of what starts the container.
//
// The container keeps all artifacts, and sends those that the operator lacks. Each answer of the
// operator says what it has. So an operator that restarts gets the rest if it has kept its disk,
// or else everything.
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

// ServerName is the name in the operator's certificate, whatever the operator's address is.
const ServerName = "rolewright-runs"

// Root is the path below which the operator answers the containers of runs.
const Root = "/rolewright/v1/job/"

const (
	startPath = Root + "start"
	filesPath = Root + "files"
	// herePath is the first request on each connection: whether this operator has the run.
	herePath = Root + "here"
	// elsewhereHeader is in the answer of an operator if another one has the run.
	elsewhereHeader = "Rolewright-Elsewhere"
	// notHereHeader is in the answer of an operator that does not have the run, if another one has it or this one will
	// have it.
	notHereHeader = "Rolewright-Not-Here"
	// podParameter names the Pod that asks: only one Pod makes a run.
	podParameter = "pod"
	// epochParameter is the operator's epoch that the container knows: data for another epoch is not accepted.
	epochParameter = "epoch"
)

// Input is what the process in the container gets, in a file.
type Input struct {
	Request request
	// URL is the URL of the operator; CA has signed its certificate.
	URL string
	CA  []byte
	// Token is the token of the run.
	Token string
	// Server and ServerCA are the values in the run's kubeconfig that the container replaces.
	Server   string
	ServerCA []byte
}

// request is the part of a [runner.Request] that the container needs.
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

// inputLimit is more bytes than an unpacked input has that fits into a Secret.
const inputLimit = 64 << 20

// Encode returns the content of the file with the input of a run, for an operator at url.
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

// Decode reads what Encode has returned.
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

// holding is the operator's answer: what it has of the run.
type holding struct {
	// Epoch changes when another operator process receives the artifacts.
	Epoch string `json:"epoch"`
	// Have is the counter up to which it has all events.
	Have int `json:"have"`
	// Reports is how many bytes of a command's reports it has.
	Reports int64 `json:"reports"`
}

// reportsDir begins the names of pieces of a command's reports; the rest is the offset at which the piece begins.
const reportsDir = "reports/"

var reportsName = regexp.MustCompile(`^` + reportsDir + `(0|[1-9][0-9]{0,8})$`)

// reportsLimit is enough for the operator to see that a command has reported too much.
const reportsLimit = report.MaxBytes + 1

// eventName matches the names of events' files; the first part is the counter.
var eventName = regexp.MustCompile(`^([1-9][0-9]{0,9})-[0-9A-Za-z-]{1,64}\.json$`)

// eventsDir begins the names of events' files on the wire, relative to the artifacts directory.
const eventsDir = "job_events/"

// lastFiles returns the other files that are sent at the end, in order: in the artifacts directory,
// and in the private data directory.
func lastFiles() (artifacts, private []string) {
	return []string{"stdout", "stderr", "rc", "status"}, []string{"runner.log"}
}

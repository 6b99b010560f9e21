package remote

import (
	"os"
	"testing"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/supervise"
	"github.com/rolewright/rolewright/test/leaktest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == runner.SupervisorCommand {
		os.Exit(supervise.Main(os.Stdin, os.Stderr))
	}
	leaktest.Main(m, supervise.ReapOrphans)
}

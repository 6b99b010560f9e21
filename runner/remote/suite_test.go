package remote

import (
	"testing"

	"github.com/rolewright/rolewright/runner/supervise"
	"github.com/rolewright/rolewright/test/leaktest"
)

func TestMain(m *testing.M) {
	leaktest.Main(m, supervise.ReapOrphans)
}

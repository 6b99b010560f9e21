// Package hostile tests what must hold whatever the data says: a corpus of custom resources and event streams on their
// whole way, from the object through the extra vars and a run of the real ansible-runner to the verdict.
//
// Of every run it is checked that nothing of the data was executed, that the verdict is what the playbook earned, that
// the values arrived unchanged, and, by tracing system calls, that no file outside the run's places was touched. What
// one package can show alone is tested there. The commands and the report that show runs and objects are given all
// texts, too.
package hostile

import (
	"testing"

	"github.com/rolewright/rolewright/test/leaktest"
	needed "github.com/rolewright/rolewright/test/testenv/parts"
)

func TestMain(m *testing.M) {
	needed.AnsibleOrExit()
	leaktest.Main(m)
}

// Package hostile tests what must be true whatever the data says. It sends a corpus of custom resources and event streams
// all the way from the object through the extra vars and a run of the real ansible-runner to the verdict.
//
// For every run it checks that nothing in the data was executed, that the verdict is the one that the playbook deserves,
// that the values arrived unchanged, and, by tracing system calls, that no file outside of the run's places was touched.
// What one package can show alone is tested there. The commands and the report that show runs and objects are given all
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

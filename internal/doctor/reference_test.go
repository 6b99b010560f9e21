package doctor

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the reference anew")

func advisoriesDoc() string {
	var b strings.Builder
	b.WriteString("# Known vulnerabilities\n\n" +
		"Written by `go test ./internal/doctor -run AdvisoriesReference -update`; edit the table in the code, not this page.\n\n" +
		"Those that [`rolewright doctor`](../doctor.md) and `rolewright run --refuse-vulnerable-ansible` know. A version that none of them is about is not\n" +
		"thereby free of vulnerabilities.\n\n" +
		"| | package | mended in | mended in Debian's | what | source |\n|---|---|---|---|---|---|\n")
	for _, a := range Advisories() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", a.ID, a.Package, strings.Join(a.Fixed, ", "), strings.Join(a.Debian, ", "), a.What, a.Source)
	}
	return b.String()
}

func TestAdvisoriesReference_IsInStepWithTheTable(t *testing.T) {
	t.Parallel()
	page := filepath.Join("..", "..", "docs", "reference", "advisories.md")
	if *update {
		if err := os.WriteFile(page, []byte(advisoriesDoc()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatalf("%v; write it with -update", err)
	}
	if diff := cmp.Diff(string(have), advisoriesDoc()); diff != "" {
		t.Errorf("the page is not what the table says; write it with -update (-page +table):\n%s", diff)
	}
}

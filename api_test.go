package rolewright

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/test/must"
)

var update = flag.Bool("update", false, "write the golden file")

// What other programs may use changes by intention: testdata/api.golden is all of it, without comments and bodies.
func TestAPI(t *testing.T) {
	t.Parallel()
	var decls []string
	fset := token.NewFileSet()
	for _, file := range must.Get(filepath.Glob("*.go"))(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed := must.Get(parser.ParseFile(fset, file, nil, 0))(t) // without comments
		ast.FileExports(parsed)
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				if f.Body = nil; !visible(f.Recv) {
					continue
				}
			}
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.IMPORT {
				continue
			}
			var text bytes.Buffer
			must.Do(t, printer.Fprint(&text, fset, d))
			if strings.Contains(text.String(), "internal/") || strings.Contains(text.String(), "watches.") || strings.Contains(text.String(), "runner.") {
				t.Errorf("an internal type is visible: %s", &text)
			}
			decls = append(decls, text.String()+"\n")
		}
	}
	slices.Sort(decls)
	const golden = "testdata/api.golden"
	got := strings.Join(decls, "\n")
	if *update {
		must.Do(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	if want := string(must.Get(os.ReadFile(golden))(t)); got != want {
		t.Errorf("the surface of the package has changed (-was +is); if it is meant to, say so in CHANGELOG.md and run go test . -run API -update:\n%s", cmp.Diff(want, got))
	}
}

// visible tells whether a method is of a type that other programs can name.
func visible(receiver *ast.FieldList) bool {
	if receiver == nil {
		return true
	}
	of := receiver.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	name, ok := of.(*ast.Ident)
	return ok && name.IsExported()
}

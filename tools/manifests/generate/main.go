// Command generate makes a Helm chart and an OLM bundle out of the manifests in config/.
//
// It knows the layout of config/ and what chart and bundle are made of. It knows nothing of the operator: names, labels and
// permissions come from config/ alone, so that all three ways to install are the same.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "generate: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("generate", flag.ContinueOnError)
	config := flags.String("config", "config", "the `directory` with the manifests")
	kubectl := flags.String("kubectl", "kubectl", "the `program` that builds them")
	out := flags.String("out", ".", "the `directory` in which dist/chart or bundle is made again")
	image := flags.String("image", "", "the operator's image in the bundle; that of config/ if empty")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "Usage: generate [flags] chart|bundle")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	k := kustomize{kubectl: *kubectl, config: *config}
	var files map[string][]byte
	var err error
	var place string
	switch flags.Arg(0) {
	case "chart":
		place = "dist/chart"
		files, err = chart(k)
	case "bundle":
		place = "bundle"
		files, err = bundle(k, *image)
	default:
		flags.Usage()
		return errors.New("say chart or bundle")
	}
	if err != nil {
		return err
	}
	return replace(*out, place, files)
}

// replace writes files, whose names are relative to root, and removes first what
// is in the directory place there.
func replace(root, place string, files map[string][]byte) error {
	if err := os.RemoveAll(filepath.Join(root, place)); err != nil {
		return fmt.Errorf("remove what is there: %w", err)
	}
	for name, data := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("make a directory: %w", err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return fmt.Errorf("write a file: %w", err)
		}
	}
	return nil
}

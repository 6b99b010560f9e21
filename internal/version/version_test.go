package version

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

func TestAssemble_PrefersWhatTheLinkerWasTold(t *testing.T) {
	fromGo := &debug.BuildInfo{
		Main:     debug.Module{Path: "github.com/rolewright/rolewright", Version: "v0.0.9"},
		Deps:     []*debug.Module{{Path: "k8s.io/api", Version: "v0.1.1"}, {Path: clientGo, Version: "v0.37.2"}},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "cafe"}},
	}
	tests := []struct {
		name                      string
		release, describe, commit string           // what the linker was told
		build                     *debug.BuildInfo // what Go put into the binary
		version, wantCommit, kube string           // what is printed
	}{
		{
			name:    "linker knows everything",
			release: "v1.2.3", describe: "v1.2.3-4-gabc", commit: "abc", build: fromGo,
			version: "v1.2.3-4-gabc", wantCommit: "abc", kube: "v1.37.2",
		},
		{
			name:    "no git description: the release",
			release: "v1.2.3", describe: unknown, commit: "abc", build: fromGo,
			version: "v1.2.3", wantCommit: "abc", kube: "v1.37.2",
		},
		{
			name:    "linker told nothing: Go's own build information",
			release: unknown, describe: unknown, commit: unknown, build: fromGo,
			version: "v0.0.9", wantCommit: "cafe", kube: "v1.37.2",
		},
		{
			name:    "linker given empty strings",
			release: "", describe: "", commit: "", build: fromGo,
			version: "v0.0.9", wantCommit: "cafe", kube: "v1.37.2",
		},
		{
			name:    "a replaced client-go counts as what replaces it",
			release: "v1", describe: unknown, commit: "abc",
			build: &debug.BuildInfo{Deps: []*debug.Module{{
				Path: clientGo, Version: "v0.37.2", Replace: &debug.Module{Path: "./fork"},
			}}},
			version: "v1", wantCommit: "abc", kube: unknown,
		},
		{
			name:    "nothing is known",
			release: unknown, describe: unknown, commit: unknown,
			build:   &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}},
			version: unknown, wantCommit: unknown, kube: unknown,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := Info{
				Version: tt.version, Commit: tt.wantCommit, Kubernetes: tt.kube,
				Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
			}
			got := assemble(tt.release, tt.describe, tt.commit, tt.build)
			must.Be(t, "assemble", want, got)
		})
	}
}

func TestRead_LeavesNoFieldEmpty(t *testing.T) {
	i := Read()
	for name, value := range map[string]string{
		"Version": i.Version, "Commit": i.Commit, "Kubernetes": i.Kubernetes, "Go": i.Go, "OS": i.OS, "Arch": i.Arch,
	} {
		if value == "" {
			t.Errorf("%s is empty, want a value or %q", name, unknown)
		}
	}
}

func TestLine_HasTheIncumbentsFormat(t *testing.T) {
	i := Info{Version: "v1.2.3", Commit: "abc", Kubernetes: "v1.37.2", Go: "go1.26.0", OS: "linux", Arch: "amd64"}
	const want = `ansible-operator version: "v1.2.3", commit: "abc", kubernetes version: "v1.37.2", ` +
		`go version: "go1.26.0", GOOS: "linux", GOARCH: "amd64"`
	if got := i.Line("ansible-operator"); got != want {
		t.Errorf("Line\n got: %s\nwant: %s", got, want)
	}
}

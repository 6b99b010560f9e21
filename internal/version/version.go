// Package version says which Rolewright this is: the release, the commit, and
// the Kubernetes line and Go release that it was built with.
//
// It takes this from the linker's flags and from the Go build information. It
// reads no files and no environment.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// unknown is the value if the build did not set one, as in ansible-operator.
const unknown = "unknown"

// Set by the linker (-ldflags "-X …"), which can set package variables only.
// Nothing else writes them.
var (
	// Version is the release, such as v1.2.3.
	Version = unknown
	// GitVersion is the release, or the nearest one and the distance from it,
	// as git describe prints it. It is preferred to Version.
	GitVersion = unknown
	// Commit is the full hash of the commit.
	Commit = unknown
)

// clientGo is the module whose release gives away the Kubernetes line.
const clientGo = "k8s.io/client-go"

// Info is everything that is known about the build. Unknown fields hold the
// word "unknown", never an empty string.
type Info struct {
	Version    string `json:"version"`
	Commit     string `json:"commit"`
	Kubernetes string `json:"kubernetes"`
	Go         string `json:"go"`
	OS         string `json:"os"`
	Arch       string `json:"arch"`
}

// Read collects the values that the linker set. The others come from the build
// information that Go itself puts into the binary, so that a plain "go install"
// is named correctly too.
func Read() Info {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		build = &debug.BuildInfo{}
	}
	return assemble(Version, GitVersion, Commit, build)
}

// assemble is Read without its sources.
func assemble(release, describe, commit string, build *debug.BuildInfo) Info {
	return Info{
		Version:    known(describe, release, moduleVersion(build)),
		Commit:     known(commit, setting(build, "vcs.revision")),
		Kubernetes: known(kubernetesVersion(build)),
		Go:         runtime.Version(),
		OS:         runtime.GOOS,
		Arch:       runtime.GOARCH,
	}
}

// Line is the one line that the version subcommand prints, without a newline,
// in ansible-operator's format and with the name that the program was called by.
func (i Info) Line(program string) string {
	return fmt.Sprintf("%s version: %q, commit: %q, kubernetes version: %q, go version: %q, GOOS: %q, GOARCH: %q",
		program, i.Version, i.Commit, i.Kubernetes, i.Go, i.OS, i.Arch)
}

// known is the first candidate that is neither empty nor unknown.
func known(candidates ...string) string {
	for _, c := range candidates {
		if c != "" && c != unknown {
			return c
		}
	}
	return unknown
}

// moduleVersion is the version of the main module; empty for a build from a
// tree that Go could not name.
func moduleVersion(build *debug.BuildInfo) string {
	if build.Main.Version == "(devel)" {
		return ""
	}
	return build.Main.Version
}

func setting(build *debug.BuildInfo, key string) string {
	for _, s := range build.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// kubernetesVersion translates client-go's release: v0.37.2 belongs to
// Kubernetes v1.37.2.
func kubernetesVersion(build *debug.BuildInfo) string {
	for _, dep := range build.Deps {
		if dep.Path != clientGo {
			continue
		}
		if dep.Replace != nil {
			dep = dep.Replace
		}
		if rest, ok := strings.CutPrefix(dep.Version, "v0."); ok {
			return "v1." + rest
		}
	}
	return ""
}

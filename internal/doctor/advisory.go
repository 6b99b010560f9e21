package doctor

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Advisory is a published vulnerability of a package that runs need.
type Advisory struct {
	ID string
	// Package is its name in Python's package index.
	Package string
	// Fixed are the first versions without it, one for each line that was mended,
	// ascending. Lines below the last of them that are not named were not mended.
	Fixed []string
	// Debian are the first versions of Debian's package that have the fix in a
	// line that was not mended otherwise.
	Debian []string
	What   string
	// Source is where the versions are from.
	Source string
}

// Advisories are those that are known here. A version that none of them is about
// is not thereby free of vulnerabilities.
func Advisories() []Advisory {
	const core, runner = "ansible-core", "ansible-runner"
	return []Advisory{
		{
			ID: "CVE-2023-5764", Package: core, Fixed: []string{"2.14.12", "2.15.7", "2.16.1"},
			What:   "values that are marked unsafe are evaluated as templates",
			Source: "docs.ansible.com: porting guides of ansible-core 2.14 and 2.15",
		},
		{
			ID: "CVE-2024-0690", Package: core, Fixed: []string{"2.14.14", "2.15.9", "2.16.3"},
			What:   "ANSIBLE_NO_LOG is ignored",
			Source: "gitlab.com/redhat/centos-stream/rpms/ansible-core: changes of 2.14.14 and 2.16.3",
		},
		{
			ID: "CVE-2024-8775", Package: core, Fixed: []string{"2.16.13", "2.17.6"}, Debian: []string{"2.14.18-0+deb12u1"},
			What:   "include_vars shows the values of vaults",
			Source: "spec file of the package ansible-core in Red Hat's products, 2.16.13; Debian's changelog",
		},
		{
			ID: "CVE-2024-9902", Package: core, Fixed: []string{"2.16.13", "2.17.6"}, Debian: []string{"2.14.18-0+deb12u1"},
			What:   "the module user lets a user take over files of others",
			Source: "spec file of the package ansible-core in Red Hat's products, 2.16.13; Debian's changelog",
		},
		{
			ID: "CVE-2024-11079", Package: core, Fixed: []string{"2.16.14", "2.17.7", "2.18.1"}, Debian: []string{"2.14.18-0+deb12u1"},
			What:   "values that are marked unsafe are evaluated when hostvars names them",
			Source: "github.com/pypa/advisory-database: PYSEC-2026-1123; Debian's changelog",
		},
		{
			ID: "CVE-2021-3701", Package: runner, Fixed: []string{"2.1.0"},
			What:   "temporary files lie where everybody may write",
			Source: "github.com/pypa/advisory-database: PYSEC-2022-43067",
		},
		{
			ID: "CVE-2021-3702", Package: runner, Fixed: []string{"2.1.0"},
			What:   "the private data directory can be taken over while it is made",
			Source: "github.com/pypa/advisory-database: PYSEC-2022-43068",
		},
	}
}

// Concerning are the advisories that a version is affected by. debian is the
// version of the Debian package that it is of; empty if it is of none.
func Concerning(name, version, debian string) []Advisory {
	return slices.DeleteFunc(Advisories(), func(a Advisory) bool {
		return a.Package != name || !a.affects(version) || a.patched(debian)
	})
}

// affects compares within the line of the version.
func (a Advisory) affects(version string) bool {
	of := numbers(version)
	if len(of) < 2 || slices.Equal(of, []int{0, 0, 0}) {
		return false // a version that says nothing
	}
	for _, fixed := range a.Fixed {
		if first := numbers(fixed); slices.Equal(first[:2], of[:2]) {
			return slices.Compare(of, first) < 0
		}
	}
	return slices.Compare(of, numbers(a.Fixed[len(a.Fixed)-1])) < 0
}

func (a Advisory) patched(debian string) bool {
	upstream, _, _ := strings.Cut(debian, "-")
	return debian != "" && slices.ContainsFunc(a.Debian, func(first string) bool {
		of, _, _ := strings.Cut(first, "-")
		return slices.Equal(numbers(of)[:2], numbers(upstream + ".0.0")[:2]) && compareDebian(debian, first) >= 0
	})
}

var leadingNumbers = regexp.MustCompile(`^\d+(\.\d+)*`)

// numbers are those at the beginning of a version: 2.18.1 of 2.18.1rc1.
func numbers(version string) []int {
	var list []int
	for part := range strings.SplitSeq(leadingNumbers.FindString(version), ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil
		}
		list = append(list, n)
	}
	return list
}

var digits = regexp.MustCompile(`^\d+`)

// compareDebian orders two versions of a Debian package, neither of which has an
// epoch: digits count as numbers, a tilde comes before the end, letters before
// all else.
func compareDebian(a, b string) int {
	rank := func(s string) int {
		switch {
		case s == "" || s[0] >= '0' && s[0] <= '9':
			return 0
		case s[0] == '~':
			return -1
		case s[0] >= 'a' && s[0] <= 'z' || s[0] >= 'A' && s[0] <= 'Z':
			return int(s[0])
		}
		return int(s[0]) + 256
	}
	for a != "" || b != "" {
		da, db := digits.FindString(a), digits.FindString(b)
		if da != "" || db != "" {
			na, _ := strconv.Atoi("0" + da) // of digits
			nb, _ := strconv.Atoi("0" + db)
			if na != nb {
				return cmp.Compare(na, nb)
			}
			a, b = a[len(da):], b[len(db):]
			continue
		}
		if c := cmp.Compare(rank(a), rank(b)); c != 0 {
			return c
		}
		a, b = a[min(1, len(a)):], b[min(1, len(b)):]
	}
	return 0
}

// DebianVersion is the version of an installed Debian package, as dpkg's status
// file has it; empty if it is not installed, or this is no Debian.
func DebianVersion(statusFile, name string) string {
	data, err := os.ReadFile(statusFile)
	if err != nil {
		return ""
	}
	for entry := range strings.SplitSeq(string(data), "\n\n") {
		if !strings.HasPrefix(entry, "Package: "+name+"\n") || !strings.Contains(entry, "\nStatus: install ok installed\n") {
			continue
		}
		_, version, _ := strings.Cut(entry, "\nVersion: ")
		version, _, _ = strings.Cut(version, "\n")
		return version
	}
	return ""
}

// CheckVersion says whether a version of a package is affected by what is known
// here.
func CheckVersion(name, version, debian string) Finding {
	f := Finding{Check: name, State: OK, Found: version}
	if debian != "" {
		f.Found += " (Debian's " + debian + ")"
	}
	if of := numbers(version); len(of) < 2 || slices.Equal(of, []int{0, 0, 0}) {
		f.State, f.Found = Note, version+" is not the true version: whether known vulnerabilities concern it is not known"
		f.Remedy = "ask the package that it is of"
		return f
	}
	found := Concerning(name, version, debian)
	if len(found) == 0 {
		return f
	}
	var all []string
	for _, a := range found {
		all = append(all, fmt.Sprintf("%s (%s)", a.ID, a.What))
	}
	f.State = Failed
	f.Found += " has known vulnerabilities: " + strings.Join(all, ", ")
	f.Remedy = fmt.Sprintf("use %s, or a package of your distribution in which they are mended", Floor(name))
	return f
}

// Floor says which versions of a package no advisory is about.
func Floor(name string) string {
	var lines []string
	for _, a := range Advisories() {
		if a.Package == name {
			lines = append(lines, a.Fixed...)
		}
	}
	slices.SortFunc(lines, func(a, b string) int { return slices.Compare(numbers(a), numbers(b)) })
	var good []string
	for i, version := range lines {
		last := i == len(lines)-1 || !slices.Equal(numbers(lines[i+1])[:2], numbers(version)[:2])
		if last && len(Concerning(name, version, "")) == 0 {
			good = append(good, version)
		}
	}
	return name + " " + strings.Join(good, ", ") + " or newer"
}

package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestConcerning_KnowsTheLines(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, version, debian string
		want                  string
	}{
		{"ansible-core", "2.14.18", "", "CVE-2024-8775 CVE-2024-9902 CVE-2024-11079"},
		{"ansible-core", "2.14.18", "2.14.18-0+deb12u2", ""},
		{"ansible-core", "2.14.16", "2.14.16-0+deb12u1", "CVE-2024-8775 CVE-2024-9902 CVE-2024-11079"},
		{"ansible-core", "2.14.3", "", "CVE-2023-5764 CVE-2024-0690 CVE-2024-8775 CVE-2024-9902 CVE-2024-11079"},
		{"ansible-core", "2.9.27", "", "CVE-2023-5764 CVE-2024-0690 CVE-2024-8775 CVE-2024-9902 CVE-2024-11079"},
		{"ansible-core", "2.16.13", "", "CVE-2024-11079"},
		{"ansible-core", "2.16.14", "", ""},
		{"ansible-core", "2.17.6", "", "CVE-2024-11079"},
		{"ansible-core", "2.17.14", "", ""},
		{"ansible-core", "2.18.0", "", "CVE-2024-11079"},
		{"ansible-core", "2.18.1", "", ""},
		{"ansible-core", "2.19.11", "2.19.11-1", ""},
		{"ansible-core", "3.0", "", ""},
		{"ansible-core", "devel", "", ""},
		{"ansible-runner", "2.0.4", "", "CVE-2021-3701 CVE-2021-3702"},
		{"ansible-runner", "2.3.1", "", ""},
		{"ansible-runner", "0.0.0", "", ""}, // it does not say
		{"other", "1.0", "", ""},
	} {
		var got []string
		for _, a := range Concerning(tt.name, tt.version, tt.debian) {
			got = append(got, a.ID)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s %s %s: %v, want %s", tt.name, tt.version, tt.debian, got, tt.want)
		}
	}
}

func TestAdvisories_AreComplete(t *testing.T) {
	t.Parallel()
	for _, a := range Advisories() {
		sorted := slices.IsSortedFunc(a.Fixed, func(x, y string) int { return slices.Compare(numbers(x), numbers(y)) })
		if a.ID == "" || a.What == "" || a.Source == "" || len(a.Fixed) == 0 || !sorted {
			t.Errorf("%+v lacks something, or its versions do not ascend", a)
		}
	}
	if got, want := Floor("ansible-core"), "ansible-core 2.16.14, 2.17.7, 2.18.1 or newer"; got != want {
		t.Errorf("the floor is %q, want %q", got, want)
	}
}

func TestCheckVersion_SaysWhatToDo(t *testing.T) {
	t.Parallel()
	got := CheckVersion("ansible-core", "2.18.0", "")
	const want = "2.18.0 has known vulnerabilities: CVE-2024-11079 (values that are marked unsafe are evaluated when hostvars names them); use ansible-core 2.16.14, 2.17.7, 2.18.1 or newer, or a package of your distribution in which they are mended"
	if got.State != Failed || got.String() != want {
		t.Errorf("%s %s", got.State, got)
	}
	if got := CheckVersion("ansible-runner", "0.0.0", ""); got.State != Note || !strings.HasPrefix(got.Found, "0.0.0 is not the true version") {
		t.Errorf("%s %s", got.State, got)
	}
	if got := CheckVersion("ansible-core", "2.19.1", ""); got.State != OK || got.String() != "2.19.1" {
		t.Errorf("%s %s", got.State, got)
	}
}

func TestCompareDebian_OrdersAsDpkg(t *testing.T) {
	t.Parallel()
	ordered := []string{"2.14.18~rc1-1", "2.14.18-0+deb12u1", "2.14.18-0+deb12u2", "2.14.18-0+deb12u10", "2.14.18-1", "2.19.0-1"}
	for i, a := range ordered {
		for j, b := range ordered {
			got := compareDebian(a, b)
			if (i < j) != (got < 0) || (i == j) != (got == 0) {
				t.Errorf("%s and %s: %d", a, b, got)
			}
		}
	}
}

func TestDebianVersion_ReadsDpkgsStatus(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "status")
	const status = "Package: ansible\nStatus: install ok installed\nVersion: 7.7.0\n\nPackage: ansible-core\nStatus: install ok installed\nArchitecture: all\nVersion: 2.14.18-0+deb12u2\nDepends: x\n\nPackage: gone\nStatus: deinstall ok config-files\nVersion: 1\n"
	if err := os.WriteFile(path, []byte(status), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"ansible-core": "2.14.18-0+deb12u2", "gone": "", "other": ""} {
		if got := DebianVersion(path, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := DebianVersion("nowhere", "ansible-core"); got != "" {
		t.Errorf("without dpkg: %q", got)
	}
}

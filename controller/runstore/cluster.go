package runstore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/plainfile"
)

// clusterFile is the file beside the runs that names the cluster of their objects.
const clusterFile = ".cluster"

// clusterLimit limits what is read of clusterFile, which has a UID.
const clusterLimit = 128

// clustersDir is the directory with the runner roots of further clusters, by UID.
const clustersDir = ".clusters"

var clusterUID = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)

// Claim returns the directory below which the runs of the cluster with this UID are stored. For
// the first cluster that claims the runner root, that is the root itself, which Claim notes there;
// for any other cluster, it is a directory in the root. The error says that the UID cannot name a
// directory, or that the directory or the note cannot be written.
func Claim(runnerRoot, cluster string) (string, error) {
	if !clusterUID.MatchString(cluster) {
		return "", fmt.Errorf("the UID %.100q of the namespace kube-system is no name for a directory", cluster)
	}
	runs, err := Dir(runnerRoot, runsDir)
	if err != nil {
		return "", err
	}
	file := filepath.Join(runs, clusterFile)
	is, err := plainfile.Read(file, clusterLimit)
	if errors.Is(err, fs.ErrNotExist) {
		if err := plainfile.Replace(file, []byte(cluster+"\n")); err != nil && !runner.IsNoSpace(err) { // on a full disk, room is made later
			return "", fmt.Errorf("note the cluster of the runner root %s: %w", filepath.Dir(runs), err)
		}
		return runnerRoot, nil
	}
	if err != nil || string(bytes.TrimSpace(is)) != cluster {
		return Dir(runnerRoot, filepath.Join(clustersDir, cluster))
	}
	return runnerRoot, nil
}

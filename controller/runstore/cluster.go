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

// clusterFile says of which cluster the objects are whose runs are beside it.
const clusterFile = ".cluster"

// clusterLimit bounds what is read of it, which is a UID.
const clusterLimit = 128

// clustersDir has the runner roots of the clusters that came later, by UID.
const clustersDir = ".clusters"

var clusterUID = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)

// Claim returns the directory below which the runs of the cluster with this UID are: the runner
// root for the first cluster that claims it, which is noted there, and for each other one a
// directory in it. The error says that the UID is no name for a directory, or what a note that
// cannot be written lacks.
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
		if err := plainfile.Replace(file, []byte(cluster+"\n")); err != nil && !runner.IsNoSpace(err) { // room is made later
			return "", fmt.Errorf("note the cluster of the runner root %s: %w", filepath.Dir(runs), err)
		}
		return runnerRoot, nil
	}
	if err != nil || string(bytes.TrimSpace(is)) != cluster {
		return Dir(runnerRoot, filepath.Join(clustersDir, cluster))
	}
	return runnerRoot, nil
}

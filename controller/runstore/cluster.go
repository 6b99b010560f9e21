package runstore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/plainfile"
)

// clusterFile says of which cluster the objects are whose runs are beside it.
const clusterFile = ".cluster"

// clusterLimit bounds what is read of it, which is a UID.
const clusterLimit = 128

// ErrOtherCluster is wrapped where the runs below a runner root are of another cluster, or may be.
var ErrOtherCluster = errors.New("the runner root has the runs of another cluster")

// Claim notes that the runs below the runner root are of the cluster with this UID, unless it is
// noted of which cluster they are.
func Claim(runnerRoot, cluster string) error {
	runs, err := Dir(runnerRoot, runsDir)
	if err != nil {
		return err
	}
	file := filepath.Join(runs, clusterFile)
	is, err := plainfile.Read(file, clusterLimit)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := plainfile.Replace(file, []byte(cluster+"\n")); err != nil && !runner.IsNoSpace(err) { // room is made later
			return fmt.Errorf("note the cluster of the runner root %s: %w", filepath.Dir(runs), err)
		}
		return nil
	case err != nil, string(bytes.TrimSpace(is)) != cluster:
		return errors.Join(fmt.Errorf("%s: %w: give each cluster a --runner-root of its own, or remove %s if that cluster is no more",
			filepath.Dir(runs), ErrOtherCluster, file), err)
	}
	return nil
}

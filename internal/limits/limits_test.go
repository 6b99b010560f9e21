package limits

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

func TestGroup_KnowsBothVersions(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		files map[string]string
		want  Limits
		used  [6]int64 // memory, processes; of the machine: total, used; cached memory; swap
	}{
		"nothing": {},
		"second, in a container": {map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "805306368\n", "sys/fs/cgroup/pids.max": "512\n", "sys/fs/cgroup/cpu.max": "50000 100000\n",
			"sys/fs/cgroup/memory.current": "5000\n", "sys/fs/cgroup/memory.oom.group": "1\n", "sys/fs/cgroup/memory.stat": "anon 7\ninactive_file 1000\nactive_file 200\nslab_reclaimable 30\n", "sys/fs/cgroup/pids.current": "9\n",
			"proc/meminfo": "MemTotal:  8 kB\nMemFree: 1 kB\nMemAvailable:  2 kB\nSwapFree: 3 kB\n", "sys/fs/cgroup/memory.swap.max": "1524\n", "sys/fs/cgroup/memory.swap.current": "500\n",
		}, Limits{805306368, 512, 0.5, true}, [6]int64{5000, 9, 8 << 10, 6 << 10, 1230, 1 << 10}},
		"second, without limits": {map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/b/pids.max": "max\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
		}, Limits{}, [6]int64{}},
		"first": {map[string]string{
			"proc/self/cgroup": "4:memory:/x\n3:pids:/x\n2:cpu,cpuacct:/outside\n",
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": "268435456\n", "sys/fs/cgroup/pids/x/pids.max": "max\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/memory/x/memory.usage_in_bytes": "5000\n", "sys/fs/cgroup/memory/x/memory.stat": "inactive_file 1\ntotal_inactive_file 1000\ntotal_active_file 200\n",
			"sys/fs/cgroup/pids/x/pids.current": "9\n",
		}, Limits{268435456, 0, 2, false}, [6]int64{5000, 9, 0, 0, 1200}},
		"first, without limits": {map[string]string{
			"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
		}, Limits{}, [6]int64{}},
	} {
		root := t.TempDir()
		for path, text := range tt.files {
			path = filepath.Join(root, path)
			must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
			must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		}
		g := Find(root)
		var used [6]int64
		used[0], used[1] = g.Used()
		used[2], used[3] = g.Machine()
		used[4], used[5] = g.Cached(), g.Swap()
		if got := g.Limits(); got != tt.want || used != tt.used {
			t.Errorf("%s: %+v, %v; want %+v, %v", name, got, used, tt.want, tt.used)
		}
	}
}

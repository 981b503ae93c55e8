package check

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

const composeFolder = root + "/deploy/compose"

// compose loads the compose file as docker compose does: against its schema, with
// nothing unknown in it.
func compose(t *testing.T) *types.Project {
	t.Helper()
	folder, err := filepath.Abs(composeFolder)
	if err != nil {
		t.Fatal(err)
	}
	project, err := loader.LoadWithContext(context.Background(), types.ConfigDetails{
		WorkingDir:  folder,
		ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(folder, "compose.yaml")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// service returns one of the project's services.
func service(t *testing.T, project *types.Project, name string) types.ServiceConfig {
	t.Helper()
	s, err := project.GetService(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestCompose: what the file mounts and builds from is there, every service is
// confined, and only this host reaches them.
func TestCompose(t *testing.T) {
	t.Parallel()
	project := compose(t)
	if names := project.ServiceNames(); !slices.Equal(names, []string{"application", "envoy", "nginx", "redis", "weir"}) {
		t.Fatalf("services %v", names)
	}
	for name, s := range project.Services {
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s is not confined", name)
		}
		for _, volume := range s.Volumes {
			if _, err := os.Stat(volume.Source); err != nil || !volume.ReadOnly {
				t.Errorf("%s mounts %s: %v, read-only %v", name, volume.Source, err, volume.ReadOnly)
			}
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s is open to other hosts", name, port.Published)
			}
		}
		if s.Build == nil && !strings.Contains(path.Base(s.Image), ":") {
			t.Errorf("%s: the image %q names no version", name, s.Image)
		}
	}
	weir := service(t, project, "weir")
	// 15 s is what --drain-timeout is where it is not given.
	if weir.StopGracePeriod == nil || time.Duration(*weir.StopGracePeriod) <= 15*time.Second {
		t.Errorf("stop_grace_period is %v, want more than the drain timeout", weir.StopGracePeriod)
	}
	build := weir.Build
	if _, err := os.Stat(filepath.Join(build.Context, build.Dockerfile)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(build.Context, "go.mod")); err != nil {
		t.Error(err)
	}
}

// composed is the command of the file's weir, with its mounts and its Redis where
// they are here.
func composed(t *testing.T, m made, project *types.Project) served {
	t.Helper()
	weir := service(t, project, "weir")
	redis := testserver.StartRedis(t, service(t, project, "redis").Command[1:]...)
	command := []string{m.binary}
	for _, arg := range weir.Command {
		for _, volume := range weir.Volumes {
			arg = strings.ReplaceAll(arg, "="+volume.Target, "="+volume.Source)
		}
		command = append(command, strings.ReplaceAll(arg, "redis://redis:6379/0", redis.URL()))
	}
	if !slices.Contains(command, "--config="+weir.Volumes[0].Source) || !slices.Contains(command, "--store="+redis.URL()) {
		t.Fatalf("the command does not use what the file mounts and starts: %v", command)
	}
	return served{command: command}
}

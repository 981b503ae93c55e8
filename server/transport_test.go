package server

import (
	"os"
	"os/exec"
	"testing"
)

// transportVariable says which transport [start] has servers use that do not say it.
const transportVariable = "WEIR_GRPC_TRANSPORT"

// TestOverFrames runs all tests of this package again, over the other transport.
func TestOverFrames(t *testing.T) {
	if os.Getenv(transportVariable) != "" || testing.Short() {
		t.Skip("the other transport has its run")
	}
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.count=1", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), transportVariable+"="+TransportFrames)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

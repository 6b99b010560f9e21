package proxy

import (
	"testing"

	"github.com/rolewright/rolewright/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

package proxy

import (
	"testing"

	"github.com/rolewright/rolewright/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
)

// writePauseImage writes an image with this program as its only file, in the format of `docker save`.
func writePauseImage(path string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return fmt.Errorf("read this program for the pause image: %w", err)
	}
	layer, err := archive(0o755, entry{"pause", program})
	if err != nil {
		return err
	}
	digest := sha256.Sum256(layer)
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/pause", "pause"}, "User": "65535:65535"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(digest[:])}},
	})
	if err != nil {
		return fmt.Errorf("describe the pause image: %w", err)
	}
	manifest, err := json.Marshal([]map[string]any{{
		"Config": "config.json", "RepoTags": []string{pauseImage}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return fmt.Errorf("describe the pause image: %w", err)
	}
	image, err := archive(0o644, entry{"manifest.json", manifest}, entry{"config.json", config}, entry{"layer.tar", layer})
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, image, 0o600); err != nil {
		return fmt.Errorf("write the pause image: %w", err)
	}
	return nil
}

// entry is a file of an archive.
type entry struct {
	name string
	data []byte
}

func archive(mode int64, entries ...entry) ([]byte, error) {
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	for _, file := range entries {
		err := writer.WriteHeader(&tar.Header{Name: file.name, Mode: mode, Size: int64(len(file.data)), Typeflag: tar.TypeReg})
		if err == nil {
			_, err = writer.Write(file.data)
		}
		if err != nil {
			return nil, fmt.Errorf("write an archive of %d bytes: %w", len(file.data), err)
		}
	}
	if err := writer.Close(); err != nil {
		return nil, fmt.Errorf("write an archive: %w", err)
	}
	return buffer.Bytes(), nil
}

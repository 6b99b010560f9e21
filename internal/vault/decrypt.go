package vault

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"regexp"
)

// header begins a vault text: format 1.1, or 1.2 with a vault ID.
var header = regexp.MustCompile(`\$ANSIBLE_VAULT;1\.[12];AES256[^\n]*\n`)

// find returns the vault texts of a file, without headers and white space: the
// whole file, or the values behind !vault tags, in JSON and double quotes, too.
func find(file []byte) [][]byte {
	var found [][]byte
	file = bytes.ReplaceAll(file, []byte(`\n`), []byte("\n"))
	for _, at := range header.FindAllIndex(file, -1) {
		var body []byte
		for line := range bytes.Lines(file[at[1]:]) {
			line, _, _ = bytes.Cut(bytes.TrimSpace(line), []byte(`"`))
			if len(line) == 0 || len(bytes.Trim(line, "0123456789abcdefABCDEF")) > 0 {
				break
			}
			body = append(body, line...)
		}
		found = append(found, body)
	}
	return found
}

// errDecrypt says that a text is damaged or was encrypted with another password.
var errDecrypt = errors.New("vault text cannot be decrypted")

// The format is that of ansible.parsing.vault.VaultAES256: three lines in hex
// (salt, HMAC, ciphertext), in hex again.
const (
	iterations = 10_000
	keySize    = 32
)

func decrypt(body, password []byte) ([]byte, error) {
	inner := make([]byte, hex.DecodedLen(len(body)))
	if _, err := hex.Decode(inner, body); err != nil {
		return nil, errDecrypt
	}
	var parts [3][]byte
	for i, line := range bytes.SplitN(inner, []byte("\n"), len(parts)) {
		part, err := hex.DecodeString(string(bytes.TrimSpace(line)))
		if err != nil {
			return nil, errDecrypt
		}
		parts[i] = part
	}
	salt, sum, ciphertext := parts[0], parts[1], parts[2]
	keys, err := pbkdf2.Key(sha256.New, string(password), salt, iterations, 2*keySize+aes.BlockSize)
	if err != nil {
		return nil, errDecrypt
	}
	mac := hmac.New(sha256.New, keys[keySize:2*keySize])
	mac.Write(ciphertext)
	if !hmac.Equal(mac.Sum(nil), sum) {
		return nil, errDecrypt
	}
	block, err := aes.NewCipher(keys[:keySize])
	if err != nil {
		return nil, errDecrypt
	}
	plain := make([]byte, len(ciphertext))
	cipher.NewCTR(block, keys[2*keySize:]).XORKeyStream(plain, ciphertext)
	if len(plain) == 0 {
		return nil, errDecrypt
	}
	padding := int(plain[len(plain)-1]) // PKCS 7
	if padding == 0 || padding > len(plain) {
		return nil, errDecrypt
	}
	return plain[:len(plain)-padding], nil
}

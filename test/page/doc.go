// Package page tries the page of rolewright ui in a real browser.
package page

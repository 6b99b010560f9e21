#!/bin/sh
echo "correct horse"

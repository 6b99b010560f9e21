-- The health of an object that is run by Rolewright: of its conditions Ready,
-- Reconciling and Stalled, where they are about the spec as it is now.
local health = { status = "Progressing", message = "Waiting for the first run" }
if obj.metadata.deletionTimestamp ~= nil then
  health.message = "The object is being deleted"
  return health
end
if obj.status == nil or obj.status.conditions == nil then
  return health
end
local of = {}
for _, condition in ipairs(obj.status.conditions) do
  of[condition.type] = condition
end
local function current(kind, status)
  local c = of[kind]
  if c == nil or c.status ~= status then
    return false
  end
  local generation = obj.metadata.generation
  return generation == nil or c.observedGeneration == nil or c.observedGeneration >= generation
end
local function message(kind)
  local c = of[kind]
  if c == nil or c.message == nil or c.message == "" then
    return nil
  end
  return c.message
end
if current("Reconciling", "True") and of.Reconciling.reason == "Paused" then
  health.status = "Suspended"
  health.message = message("Reconciling")
elseif current("Reconciling", "True") and of.Reconciling.reason == "Waiting" then
  health.message = message("Reconciling")
elseif current("Stalled", "True") or current("Ready", "False") then
  health.status = "Degraded"
  health.message = message("Ready") or message("Stalled")
elseif current("Ready", "True") then
  health.status = "Healthy"
  health.message = message("Ready")
else
  health.message = message("Reconciling") or "Waiting for the run of the present spec"
end
return health

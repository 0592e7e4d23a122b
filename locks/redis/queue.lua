-- One lock name on one Redis server: who holds it, who waits, who is next.
--
-- Each step is one atomic script on the server's clock. It may be repeated with the same id, any
-- number of times and late: a repetition changes nothing.
--
-- KEYS, all but the last with the name's hash tag:
--   1 S  hash  format, name, epoch, run (the server's run_id), quiet (the end
--              of the quarantine), ticket and fence (the last given)
--   2 H  zset  id of each holder      -> when both its lease and its hold are over
--   3 Q  zset  place of each waiter   -> 0: ordered by the place's bytes
--   4 D  zset  place of each waiter   -> when it counts as dead
--   5 E  hash  id -> record; id@ -> when the lease ends of a holder that has a
--              hold; id! -> who evicted it
--   6 G  zset  tombstones: id that has left or released -> when; kept for ten
--              minutes, so that a late join makes no entry for an id that is gone
--   7    zset  index: every name in use -> when the name is dropped from the index (not in a cluster)
-- A place is order .. ticket .. id; 16, 16 and 32 digits.
-- A record is JSON. join is 0 if the waiter has not subscribed, else the moment of its
-- latest join: a published grant counts from there. order is the inverted priority in
-- hexadecimal; hold is how many ms from the grant on the slot stays taken, with or
-- without its holder; slots are like "0,3-5". The script ignores owner.
-- Moments are ms; ticket, fence and since are us of the server's clock, in 16 digits, or 0.
--
-- ARGV[1] is JSON: mode, id, name; epoch and record, as the caller knows them; subscribed;
--   nowait; within: ids of the enclosing runs, outermost first; every: for a join, the longest time
--   between two questions of a waiter, in ms; queue: a join does not queue behind this number of
--   waiters; by: who asks, for the runs that are evicted; quarantine, and age for sweep, in ms.
-- Answers are JSON with a verdict, which tells what else is there:
--   join     granted, waiting: epoch record noRunID entries (the replaced ones);
--            waiting: place recheck quarantine, too | busy, nested: full inside quarantine
--            waiters entries | gone | evicted: by
--            noRunID: the server does not tell its run_id; recheck: ms until the caller
--            should ask again; quarantine: the rest of the quarantine in ms, if nothing else is in
--            the way of the entry
--   renew    held: epoch record name | lost | evicted: by
--   hold     as renew; the hold counts from now: ask.hold, in ms
--   release  released: existed epoch
--   leave    released: existed epoch; unlike release it leaves no hold behind
--   evict    marked | lost
--   list     list: name entries
--   sweep    swept: removed
--   any      format: found format | name: found | invalid: name flaws
-- A flaw is an id and why golock cannot have written what is stored of it; the id '' is the
-- lock's own state. As long as there are flaws, entries go on holding and waiting, but no newcomer
-- joins. The answer to list has flaws too.
-- An entry is: state, id, age, left and hold in ms, record, ended if only the hold keeps the
-- slot, by if somebody evicted it. age counts from since.
-- Published to an entry: recheck, in how many ms | epoch and record of a grant | evicted
local S, H, Q, D, E, G, INDEX = unpack(KEYS)
local ask = cjson.decode(ARGV[1])
local id, name, channels = ask.id, ask.name, S:sub(1, -2) .. 'c:'

local FORMAT = '3'
local TOMBSTONE = 600000 -- ms that a tombstone is kept
-- Package queue has the reasons for these numbers, which are in ms here (queue.UnreachableLimit is one of
-- them). TestScriptConstants compares them.
local UNREACHABLE_LIMIT = 500
local NEWCOMER_LIMIT = 3000
local NEWCOMER_ASK_EVERY = 1000
local CHECK_AFTER = 450
local CHECKING_PLACE = 2
local TTL = 30000        -- ms: an entry whose TTL is not known has at least this time left
local MAXTTL = 315360000000
local MAXHOLD = 9223372036855
local MAXSLOT = 2147483647
local MAXQUARANTINE = 3600000
local MAXMOMENT = 9e13   -- ms; JSON would have an exponent in a larger number
local MAXRECORD = 32768  -- bytes
local FINITE = math.huge
local MAXNUMBER = '9000000000000000' -- of tickets and fences; Lua counts exactly a little further

-- Somebody may have put a key of another type in the place of one of golock's. A sweep removes such a key by
-- PEXPIRE, so that it needs no more rights than the other steps.
local foreignKeys = 0
if ask.mode == 'sweep' then
  for i, count in ipairs({'HLEN', 'ZCARD', 'ZCARD', 'ZCARD', 'HLEN', 'ZCARD', 'ZCARD'}) do
    local answer = KEYS[i] and redis.pcall(count, KEYS[i])
    if type(answer) == 'table' and answer.err and answer.err:find('WRONGTYPE', 1, true) then
      foreignKeys = foreignKeys + redis.call('PEXPIRE', KEYS[i], 0)
    end
  end
end

-- Formats a number in 16 digits. Lua would write a large number as 1.8e+15.
local function digits(n) return string.format('%016.0f', n) end

local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)

local format, stored, epoch, run, quiet, ticket, fence =
  unpack(redis.call('HMGET', S, 'format', 'name', 'epoch', 'run', 'quiet', 'ticket', 'fence'))
if format and format ~= FORMAT then return cjson.encode({verdict = 'format', found = format, format = FORMAT}) end
if stored and stored ~= '' then
  local isOther = name ~= '' and stored ~= name
  if isOther and ask.mode ~= 'sweep' then return cjson.encode({verdict = 'name', found = stored}) end
  name = stored
end
quiet = tonumber(quiet) or 0
-- The clock may have gone back, or somebody has changed the field: then the quarantine begins now.
local hasLateQuiet = not (quiet <= now + MAXQUARANTINE)
if hasLateQuiet then quiet = now + ask.quarantine end
local noRunID = false -- the server does not tell its run_id

-- Entries that golock cannot have written: id -> why.
local flaws = {}

local function isWhole(n, least, most)
  return type(n) == 'number' and n >= least and n <= most and n % 1 == 0
end

local function isNumber(text)
  return text == '0' or type(text) == 'string' and #text == 16 and text:find('^%d+$') and text <= MAXNUMBER
end

-- Whether a table can be written as JSON again: it has no deep tables and no infinite numbers.
local function isFlat(t, depth)
  for _, v in pairs(t) do
    if type(v) == 'table' then
      if depth == 0 or not isFlat(v, depth - 1) then return false end
    elseif type(v) == 'number' and not (v > -FINITE and v < FINITE) then
      return false
    end
  end
  return true
end

-- Whether the slots are ascending numbers below max, one for each unit of the weight.
local function areSlots(r)
  -- The common case, a single slot, needs no parsing.
  if r.weight == 1 and #r.slots < 10 and r.slots:find('^%d+$') then
    return r.max == 0 or tonumber(r.slots) < r.max
  end
  local units, last = 0, -1
  for part in (r.slots .. ','):gmatch('([^,]*),') do
    local from, to = part:match('^(%d+)%-(%d+)$')
    from = tonumber(from or part:match('^%d+$'))
    to = tonumber(to) or from
    if not from or from <= last or to < from or to > MAXSLOT then return false end
    units, last = units + to - from + 1, to
  end
  return units == r.weight and (r.max == 0 or last < r.max)
end

-- Whether a table of JSON is an array with texts only. An empty array is refused, because Lua cannot tell it
-- from an empty object.
local function areTexts(t)
  if type(t) ~= 'table' or #t == 0 then return false end
  for k, v in pairs(t) do
    if type(k) ~= 'number' or type(v) ~= 'string' then return false end
  end
  return true
end

-- Whether the names of all fields are lower-case ASCII, as golock writes them. Go's decoder would also read a
-- field Max as max.
local function hasPlainNames(t)
  for k in pairs(t) do
    if type(k) ~= 'string' or k:find('[^%l%d_]') then return false end
  end
  return true
end

-- Returns what is wrong with the owner of a record, or nil. This script does not use the owner, but
-- the clients that get the record must be able to read it.
local function flawOfOwner(o)
  if type(o) ~= 'table' or not hasPlainNames(o) then return 'owner' end
  if type(o.host) ~= 'string' then return 'host of the owner' end
  if not isWhole(o.pid, 0, MAXSLOT) then return 'pid ' .. tostring(o.pid):sub(1, 40) end
  if not isWhole(o.uid, -MAXSLOT - 1, 4294967295) then return 'uid ' .. tostring(o.uid):sub(1, 40) end
  if o.user ~= nil and type(o.user) ~= 'string' then return 'user of the owner' end
  if o.runs ~= nil and type(o.runs) ~= 'boolean' then return 'runs of the owner' end
  if o.note ~= nil and type(o.note) ~= 'string' then return 'note of the owner' end
  if o.command ~= nil and not areTexts(o.command) then return 'command of the owner' end
end

local function isPriority(text)
  local n = type(text) == 'string' and #text <= 11 and text:find('^-?%d+$') and tonumber(text)
  return isWhole(n, -MAXSLOT - 1, MAXSLOT)
end

-- Returns why golock cannot have written the fields of a record, or nil if it can. (*record).check in
-- Go checks the same fields and bounds: TestRecordChecks compares the two.
local function flawOfRecord(r)
  if not hasPlainNames(r) then return 'the name of a field' end
  if not isWhole(r.weight, 1, 65536) then return 'weight ' .. tostring(r.weight) end
  if not isWhole(r.max, 0, MAXSLOT) or r.max > 0 and r.weight > r.max then return 'max ' .. tostring(r.max) end
  if not isWhole(r.ttl, 1, MAXTTL) then return 'ttl ' .. tostring(r.ttl) end
  if not isWhole(r.hold, 0, MAXHOLD) then return 'hold ' .. tostring(r.hold) end
  if not isWhole(r.join, 0, MAXMOMENT) then return 'join ' .. tostring(r.join) end
  if not isNumber(r.ticket) then return 'ticket ' .. tostring(r.ticket):sub(1, 40) end
  if not isNumber(r.fence) then return 'fence ' .. tostring(r.fence):sub(1, 40) end
  if not isNumber(r.since) then return 'since ' .. tostring(r.since):sub(1, 40) end
  if not isPriority(r.priority) then return 'priority ' .. tostring(r.priority):sub(1, 40) end
  if type(r.order) ~= 'string' or #r.order ~= 16 or r.order:find('%X') then return 'order' end
  if r.replace ~= '' and r.replace ~= 'waiting' and r.replace ~= 'running' then return 'replace' end
  if type(r.slots) ~= 'string' or r.slots ~= '' and not areSlots(r) then
    return 'slots ' .. tostring(r.slots):sub(1, 40)
  end
  return flawOfOwner(r.owner)
end

local function isID(id) return #id == 32 and not id:find('[^%da-f]') end

-- Reads a record. Returns why golock cannot have written it, or nil, and its fields as far as they can
-- be read.
local function read(id, text)
  if not isID(id) then return 'an ID is 32 hexadecimal digits', {} end
  if #text > MAXRECORD then return 'a record of ' .. #text .. ' bytes', {} end
  local ok, r = pcall(cjson.decode, text)
  if not ok or type(r) ~= 'table' or not isFlat(r, 2) then return 'the record is not readable', {} end
  local flaw = flawOfRecord(r)
  -- A join writes the record before the entry is a holder, and gives the slots in the same step.
  if not flaw and r.slots == '' and redis.call('ZSCORE', H, id) then flaw = 'a holder without slots' end
  return flaw, r
end

-- Returns the record of an id, and whether it is stored. A record that is missing (the server was short
-- of memory), or has a flaw, counts as exclusive until its owner's next renewal restores it. Its ttl
-- and hold count if they can be read.
local function record(id)
  local text = redis.call('HGET', E, id)
  local flaw, r
  if text then
    flaw, r = read(id, text)
    if not flaw then return r, true end
  elseif not isID(id) then
    flaw = 'an ID is 32 hexadecimal digits'
  end
  flaws[id] = flaw
  local exclusive = {weight = 1, max = 1, slots = '', join = 0, replace = '', hold = 0, isUnknown = true}
  if r and isWhole(r.ttl, 1, MAXTTL) then exclusive.ttl = r.ttl end
  if r and isWhole(r.hold, 0, MAXHOLD) and isNumber(r.since) then
    exclusive.hold, exclusive.since = r.hold, r.since
  end
  return exclusive, false
end

-- Returns a moment at which the lease of an entry is over in any case, unless somebody prolongs it. The
-- keys outlive all leases and holds, so the lifetime of key limits a lease whose ttl is not known.
local function latestEnd(r, key)
  return now + (r.ttl or math.max(TTL, redis.call('PTTL', key)))
end

-- Returns who evicted an entry, or false.
local function evictorOf(id)
  local by = redis.call('HGET', E, id .. '!')
  return by and by:sub(1, 1000)
end

-- A moment after the end of any lease and any hold.
local FAR = now + MAXHOLD + 1000

-- Notes flaws: the entries whose time never ends, and a ticket or fence that cannot be counted up. Returns the
-- set of the ids of those entries.
local function noteFar()
  local far = {}
  for _, key in ipairs({H, D}) do
    for _, at in ipairs(redis.call('ZRANGEBYSCORE', key, FAR, '+inf', 'LIMIT', 0, 100)) do
      local id = key == D and at:sub(33) or at
      far[id], flaws[id] = true, 'a time that does not end'
    end
  end
  local isTicketBad = ticket and not isNumber(ticket)
  local isFenceBad = fence and not isNumber(fence)
  if isTicketBad or isFenceBad then flaws[''] = 'ticket or fence' end
  return far
end

-- Returns the flaws as a list for an answer, or nil if there are none.
local function listFlaws()
  local all = {}
  for flawed, why in pairs(flaws) do all[#all + 1] = {id = flawed:sub(1, 64), why = why} end
  return #all > 0 and all or nil
end

-- Returns when the hold of a holder is over, or 0 if it has none.
local function holdEnd(r) return r.hold > 0 and math.floor(tonumber(r.since) / 1000) + r.hold or 0 end

-- Returns when the lease of a holder with a hold is over, or nil or false if that is not known.
local function leaseEnd(id)
  local moment = redis.call('HGET', E, id .. '@')
  return moment and moment:find('^%d+$') and tonumber(moment)
end

-- Whether a holder has a lease; if not, only its hold keeps the slot. A release that leaves a hold behind
-- removes id@ and adds a tombstone. If somebody has changed id@ or the record, the holder counts as alive.
local function alive(r, id)
  if r.hold == 0 and not r.isUnknown then return true end
  local moment = leaseEnd(id)
  if moment then return moment > now end
  if r.hold > 0 then return redis.call('HEXISTS', E, id .. '@') == 1 end
  return not redis.call('ZSCORE', G, id)
end

local function place(r, id) return r.order .. r.ticket .. id end

-- Removes the waiter at a place from the queue.
local function dequeue(at)
  redis.call('ZREM', Q, at)
  redis.call('ZREM', D, at)
end

-- Removes an id from the queue. It is for an id whose place is not known, because its record cannot be read.
-- Returns whether the id was in the queue.
local function dequeueAll(id)
  local found = false
  for _, at in ipairs(redis.call('ZRANGE', Q, 0, -1)) do
    if at:sub(33) == id then
      dequeue(at)
      found = true
    end
  end
  return found
end

-- A server at its maxmemory refuses a command that may need memory, but only if it is the first write
-- of a script. So steps of existing entries begin with this write, which needs no memory.
local function bypassMemoryLimit() redis.call('ZREM', H, '-') end

-- Prolongs the lifetime of a key to span ms after the last hold, which ends in holdLeft ms. It changes a
-- lifetime only if that ends before the hold or in less than nine tenths of span, so that most scripts need
-- not change any.
local function prolong(key, span, holdLeft)
  local rest = redis.call('PTTL', key)
  if rest ~= -2 and rest < math.max(span * 9 / 10, holdLeft) then
    redis.call('PEXPIRE', key, string.format('%.0f', holdLeft + span))
  end
end

-- Prolongs the lifetimes of all keys, and the time of the name in the index, for an entry with that ttl. Its
-- hold ends at holdEndsAt, which is 0 or nil if it has none.
local function keep(ttl, holdEndsAt)
  local held = math.max((holdEndsAt or 0) - now, 0)
  for _, key in ipairs({S, H, Q, D, E}) do prolong(key, 10 * ttl, held) end
  if INDEX then
    local span = math.max(10 * ttl, 86400000)
    redis.call('ZADD', INDEX, 'GT', now + held + span, name)
    prolong(INDEX, span, held)
  end
end

-- Begins or prolongs the lease of a holder. The first HSET changes nothing, but it is sent to replicas
-- in any case, and the caller may WAIT for that. The ZADD is not sent if a repetition in the same ms
-- changes nothing.
local function lease(r, id)
  redis.call('HSET', S, 'format', FORMAT)
  if r.hold > 0 then redis.call('HSET', E, id .. '@', now + r.ttl) end
  redis.call('ZADD', H, math.max(now + r.ttl, holdEnd(r)), id)
  keep(r.ttl, holdEnd(r))
end

local changed = false -- an entry has left or come: it may be the turn of another one

-- Drops the entries whose time was over at a moment, and notes in changed whether there were any. Returns their
-- number.
local function dropExpired(moment)
  local holders = redis.call('ZRANGEBYSCORE', H, '-inf', moment)
  for _, dead in ipairs(holders) do
    redis.call('ZREM', H, dead)
    redis.call('HDEL', E, dead, dead .. '@', dead .. '!')
  end
  local waiters = redis.call('ZRANGEBYSCORE', D, '-inf', moment)
  for _, dead in ipairs(waiters) do
    dequeue(dead)
    redis.call('HDEL', E, dead:sub(33))
  end
  changed = #holders + #waiters > 0
  return #holders + #waiters
end

-- Adds the ranges of a list of slots to a table.
local function addRanges(slots, into)
  for range in slots:gmatch('[%d-]*%d') do
    local from, to = range:match('^(%d+)-(%d+)$')
    into[#into + 1] = {tonumber(from or range), tonumber(to or range)}
  end
end

-- Returns the smaller one of two maxima. 0 stands for no max.
local function smallerMax(a, b)
  if a == 0 then return b end
  if b == 0 then return a end
  return math.min(a, b)
end

-- Adds a holder to what is in use.
local function addHolder(use, r)
  use.sum = use.sum + r.weight
  use.limit = smallerMax(use.limit, r.max)
end

-- Returns what is in use: the sum of the holders' weights, their smallest max (or 0 if none has one),
-- and their slots as sorted ranges. The last range lies beyond all slots. All slots before from are
-- taken.
local function inUse()
  local use = {sum = 0, limit = 0, taken = {}, from = 0}
  for _, h in ipairs(redis.call('ZRANGE', H, 0, -1)) do
    local r = record(h)
    addHolder(use, r)
    addRanges(r.slots, use.taken)
  end
  table.sort(use.taken, function(a, b) return a[1] < b[1] end)
  use.taken[#use.taken + 1] = {math.huge, math.huge}
  return use
end

-- Whether the rule of admission lets the first waiter in.
local function fits(r, use)
  local limit = smallerMax(use.limit, r.max)
  return limit == 0 or use.sum + r.weight <= limit
end

-- Takes the lowest free slots, one for each unit of weight, and moves use.from behind them.
local function takeLowest(use, units)
  local list = {}
  for _, t in ipairs(use.taken) do
    local from, n = use.from, math.min(t[1] - use.from, units)
    if n > 0 then
      list[#list + 1] = n == 1 and string.format('%d', from) or string.format('%d-%d', from, from + n - 1)
      units, use.from = units - n, from + n
    end
    if units == 0 then return table.concat(list, ',') end
    use.from = math.max(use.from, t[2] + 1)
  end
end

-- Whether a slot of a list like "0,3-5" is in one of the ranges in taken.
local function overlap(slots, taken)
  local wanted = {}
  addRanges(slots, wanted)
  for _, m in ipairs(wanted) do
    for _, t in ipairs(taken) do
      if m[1] <= t[2] and t[1] <= m[2] then return true end
    end
  end
  return false
end

-- Returns the next ticket or fence. It grows even if the data is lost, as long as the clock does not go
-- back.
local function nextNumber(last)
  return digits(math.max((isNumber(last) and tonumber(last) or 0) + 1, micros))
end

-- Begins a new epoch if this is another server than before, or its data is gone. A holder that is
-- missing in the epoch of its grant was removed; in a later epoch it was forgotten and may come back.
-- After a restart or a failover, and on a young server without data, nothing is granted until holders
-- have had the time to renew. A server that has run for long and has no data needs no quarantine: the
-- data was deleted, or never existed.
local function checkEpoch()
  if name == '' then return end -- the caller does not know the name, and nothing is stored under the key
  if hasLateQuiet then redis.call('HSET', S, 'quiet', quiet) end
  local info = redis.pcall('INFO', 'server')
  local runID, uptime = '', nil
  if type(info) == 'string' then
    runID, uptime = info:match('run_id:(%x+)') or '', tonumber(info:match('uptime_in_seconds:(%d+)'))
  end
  noRunID = runID == ''
  if epoch and (noRunID or runID == run) then return end
  local hasRestarted = run and run ~= ''
  local isYoung = uptime and uptime * 1000 < ask.quarantine + 1000
  if ask.quarantine > 0 and (hasRestarted or not epoch and isYoung) then quiet = now + ask.quarantine end
  epoch = id .. '-' .. digits(micros)
  redis.call('HSET', S, 'format', FORMAT, 'name', name, 'epoch', epoch, 'run', runID, 'quiet', quiet)
  prolong(S, ask.quarantine + 60000, 0) -- S may be the only key that this step writes, so it gets its expiry here
  if INDEX then redis.call('ZREMRANGEBYSCORE', INDEX, '-inf', now) end
end

-- Returns the time in ms until a moment, at least 0. It is limited, because JSON would have an exponent in a
-- larger number.
local function msUntil(moment) return math.min(math.max(moment - now, 0), 9e13) end

-- Returns the number of receivers, or an error.
local function publish(to, message) return redis.pcall('PUBLISH', channels .. to, cjson.encode(message)) end

-- Makes an entry a holder; at is its place if it is queued.
local function grant(r, id, at, use)
  r.fence = nextNumber(fence)
  r.since = digits(micros)
  r.slots = takeLowest(use, r.weight)
  addHolder(use, r)
  fence = r.fence
  if not ticket or r.ticket > ticket then ticket = r.ticket end
  redis.call('HSET', S, 'fence', fence, 'ticket', ticket)
  if at then dequeue(at) end
  redis.call('HSET', E, id, cjson.encode(r))
  lease(r, id)
end

-- Grants to the first waiter and publishes the grant, which saves the waiter a join. The waiter counts its
-- lease from its latest join, which came before the grant. Returns false if the waiter has to ask. A waiter
-- that is subscribed to a replica or to another node has to ask too: this server cannot know whether the waiter
-- receives the message.
local function grantFirst(r, id, at, use)
  if r.join == 0 or not redis.call('ZSCORE', D, at) then return false end
  local subscribers = redis.pcall('PUBSUB', 'NUMSUB', channels .. id)
  if (tonumber(subscribers[2]) or 0) == 0 then return false end
  grant(r, id, at, use)
  publish(id, {epoch = epoch, record = r})
  return true
end

-- Returns the time in ms until the first lease or hold is over, unless somebody prolongs it, or nil if
-- nobody holds.
local function firstEnd()
  local over = redis.call('ZRANGE', H, 0, 0, 'WITHSCORES')[2]
  return over and msUntil(over) + 1
end

-- Tells the first waiter to ask, and the second one to ask after a while, in case the first has died. A
-- waiter without a subscriber counts as dead unless it asks before a limit. The next waiter is told to ask when
-- that limit is over.
local function tellFirst()
  local wait, told = 0, false
  for i = 0, redis.call('ZCARD', Q) - 1 do
    local at = redis.call('ZRANGE', Q, i, i)[1]
    local waiter = at:sub(33)
    local receivers = publish(waiter, {recheck = wait})
    if receivers ~= 0 then -- after an error, too, the waiter may have received the message
      if told then return end
      wait, told = math.max(wait, CHECK_AFTER), true
    elseif not told then
      redis.call('ZADD', D, 'LT', now + (record(waiter).join == 0 and NEWCOMER_LIMIT or UNREACHABLE_LIMIT), at)
      wait = math.max(wait, msUntil(redis.call('ZSCORE', D, at)) + 1)
    end
  end
end

-- Grants to the first waiters what is free, or tells the first to ask. A waiter that becomes the first
-- is told to ask for its place. The caller may be among these waiters.
local function wake()
  if quiet > now or redis.call('ZCARD', Q) == 0 then return end
  local use = inUse() -- only once, because it reads all holders, of which there may be thousands
  local granted = false
  while true do
    local at = redis.call('ZRANGE', Q, 0, 0)[1]
    if not at then return end
    local waiter = at:sub(33)
    local r = record(waiter)
    if not fits(r, use) then -- no release wakes the waiter if only a hold keeps the slots
      publish(waiter, {recheck = granted and CHECK_AFTER or firstEnd()})
      return
    end
    if not grantFirst(r, waiter, at, use) then return tellFirst() end
    granted = true
  end
end

-- Adds the tombstone of an id, and removes tombstones that are old enough.
local function addTombstone(id)
  redis.call('ZADD', G, now, id)
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', G, '-inf', now - TOMBSTONE)) do
    redis.call('ZREM', G, old)
    redis.call('HDEL', E, old .. '!')
  end
  redis.call('PEXPIRE', G, TOMBSTONE)
end

local function removeEntry(r, id)
  redis.call('ZREM', H, id)
  if r.order then dequeue(place(r, id)) end
  redis.call('HDEL', E, id, id .. '@', id .. '!')
  addTombstone(id)
  changed = true
end

-- Evicts an entry. A waiter, or an entry that only keeps its slot until its hold is over, is removed at
-- once. A holder is only marked: it has to end its command first.
local function evict(id, r)
  changed = true
  if not redis.call('ZSCORE', H, id) then
    removeEntry(r, id)
    redis.call('HSET', E, id .. '!', ask.by)
    prolong(E, TOMBSTONE, 0)
  elseif alive(r, id) then
    redis.call('HSETNX', E, id .. '!', ask.by)
    -- The eviction ends the hold, so the entry ends with its lease. If somebody has changed id@, the TTL limits it.
    local moment = math.min(leaseEnd(id) or math.huge, latestEnd(r, H))
    redis.call('ZADD', H, 'LT', string.format('%.0f', moment), id)
  else
    return removeEntry(r, id)
  end
  publish(id, {evicted = true})
end

-- Returns an entry in the form that answers have.
local function entryOf(state, id, moment, r)
  local age = math.max(math.floor((micros - tonumber(r.since)) / 1000), 0)
  local e = {state = state, id = id, age = age, left = msUntil(moment), record = r, by = evictorOf(id) or nil}
  if state == 'holding' then
    e.ended = not alive(r, id)
    if not e.by then e.hold = msUntil(holdEnd(r)) end
  end
  return e
end

-- Returns the holders in the form that answers have.
local function listHolders()
  local entries, all = {}, redis.call('ZRANGE', H, 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do
    local isLive = tonumber(all[i + 1]) > now
    local r, stored
    if isLive then r, stored = record(all[i]) end
    if stored then entries[#entries + 1] = entryOf('holding', all[i], all[i + 1], r) end
  end
  return entries
end

-- Returns nil for an empty list, which would be an object in JSON.
local function listed(entries) return #entries > 0 and entries or nil end

-- Returns the waiters before a place that may be replaced: those that were started with --replace too.
local function rivals(at)
  local all = {}
  for _, other in ipairs(redis.call('ZRANGEBYLEX', Q, '-', '(' .. at)) do
    local r = record(other:sub(33))
    if r.replace ~= '' then all[#all + 1] = {id = other:sub(33), r = r, state = 'waiting'} end
  end
  return all
end

-- Evicts the entries that a newcomer replaces: the waiters in chosen and, if it replaces running ones,
-- holders that do so too, the oldest first, until the newcomer fits beside the others. Returns the evicted
-- entries in the form that answers have.
local function replace(newcomer, chosen)
  local stay = {}
  for _, h in ipairs(redis.call('ZRANGE', H, 0, -1)) do
    if not evictorOf(h) then stay[#stay + 1] = {id = h, r = record(h), state = 'holding'} end
  end
  local function hasRoom()
    local use = {sum = 0, limit = 0}
    for _, v in ipairs(stay) do addHolder(use, v.r) end
    return fits(newcomer, use)
  end
  table.sort(stay, function(a, b) return (a.r.ticket or '') < (b.r.ticket or '') end)
  local i = 1
  while newcomer.replace == 'running' and stay[i] and not hasRoom() do
    if stay[i].r.replace == 'running' then
      chosen[#chosen + 1] = table.remove(stay, i)
    else
      i = i + 1
    end
  end
  local answer = {}
  for _, v in ipairs(chosen) do
    answer[#answer + 1] = entryOf(v.state, v.id, now, v.r)
    evict(v.id, v.r)
  end
  return answer
end
